//! Who a request comes from: what the one authentication step yields.
//!
//! Every request passes authentication before anything else; it never refuses. An [`Identity`]
//! keeps apart what was proved (a token, a workload, a node, a certificate), and carries the access
//! list of the moment, compiled and shared. It is used for authorisation, becomes the actor of the
//! events the request causes, and labels metrics (AUTH-01 to AUTH-03).

use std::sync::Arc;

use drover_events::actor::{Actor, ActorKind};
use drover_events::model::AclToken;

use drover_acl::Acl;
use drover_error::{Code, Refusal};
use drover_keyring::Claims;
use drover_net::tls::PeerCertificate;

/// The caller of one request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The caller as it is written into events.
    pub actor: Actor,
    /// What the caller may do.
    pub acl: Arc<Acl>,
    /// The token that was given, if it is a good one; without its secret.
    pub token: Option<Arc<AclToken>>,
    /// What the servers once signed of the workload that calls, if it is one that lives.
    pub claim: Option<Arc<Claims>>,
    /// Why the token that was given is not valid. The request is refused where it is served.
    pub refusal: Option<Rejection>,
    /// The certificate that the other end of the connection showed.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Nobody has it.
    Unknown,
    /// Its time is over.
    Expired,
    /// It is not known yet: the tables have less than the log had when this server started.
    Early,
}

impl Rejection {
    /// What the agent says about it where it answers for itself.
    #[must_use]
    pub fn in_words(self) -> Refusal {
        let text = match self {
            Self::Unknown => "ACL token not found",
            Self::Expired => "ACL token expired",
            Self::Early => {
                let text = "the server has just started and reads its log; try again in a moment";
                return Refusal::new(Code::Unavailable, text).after(1);
            }
        };
        Refusal::new(Code::PermissionDenied, text)
    }

    /// What everything else says about it: not why it is not valid.
    #[must_use]
    pub fn at_large(self) -> Refusal {
        match self {
            Self::Early => self.in_words(),
            Self::Unknown | Self::Expired => Refusal::permission_denied(),
        }
    }
}

/// An anonymous caller, which may do nothing.
impl Default for Identity {
    fn default() -> Self {
        Self::anonymous("", Arc::new(Acl::denied()))
    }
}

impl Identity {
    /// A caller without a token, which may do what `acl` says.
    pub fn anonymous(addr: impl Into<String>, acl: Arc<Acl>) -> Self {
        let actor = Actor {
            kind: ActorKind::Anonymous,
            addr: addr.into(),
            ..Actor::default()
        };
        Self::of(actor, acl)
    }

    /// A caller without a token while ACLs are off: anonymous, allowed everything.
    pub fn open(addr: impl Into<String>) -> Self {
        Self::anonymous(addr, Arc::new(Acl::management()))
    }

    /// A part of this server that acts by itself, such as a reactor.
    pub fn server(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self::of(Actor::server(id, name), Arc::new(Acl::management()))
    }

    /// A client node, known by its secret.
    pub fn node(id: impl Into<String>, addr: impl Into<String>) -> Self {
        Self::of(Actor::node(id, addr), Arc::new(Acl::denied()))
    }

    /// The bearer of a token.
    pub fn bearer(token: Arc<AclToken>, addr: impl Into<String>, acl: Arc<Acl>) -> Self {
        let actor = Actor {
            kind: ActorKind::Token,
            id: token.accessor_id.clone(),
            name: token.name.clone(),
            addr: addr.into(),
            ..Actor::default()
        };
        Self {
            token: Some(token),
            ..Self::of(actor, acl)
        }
    }

    /// A task, by what was signed of it.
    pub fn workload(claim: Arc<Claims>, addr: impl Into<String>, acl: Arc<Acl>) -> Self {
        let actor = Actor {
            kind: ActorKind::Workload,
            id: claim.nomad_allocation_id.clone(),
            name: claim.sub.clone(),
            addr: addr.into(),
            ..Actor::default()
        };
        Self {
            claim: Some(claim),
            ..Self::of(actor, acl)
        }
    }

    /// A caller that gave a token that is not valid.
    pub fn refused(addr: impl Into<String>, refusal: Rejection) -> Self {
        Self {
            refusal: Some(refusal),
            ..Self::anonymous(addr, Arc::new(Acl::denied()))
        }
    }

    fn of(actor: Actor, acl: Arc<Acl>) -> Self {
        Self {
            actor,
            acl,
            token: None,
            claim: None,
            refusal: None,
            certificate: None,
        }
    }

    /// What the caller is called where requests are counted: never a secret (AUTH-07, AUTH-11).
    #[must_use]
    pub fn label(&self) -> String {
        let (id, addr) = (&self.actor.id, &self.actor.addr);
        match (self.actor.kind, &self.certificate) {
            (ActorKind::Token, _) => format!("token:{id}"),
            (ActorKind::Workload, _) => format!("alloc:{id}"),
            (ActorKind::Node, _) => format!("client:{id}"),
            (_, Some(certificate)) => format!("{}:{addr}", certificate.common_name),
            (ActorKind::Server, None) => format!("server:{id}"),
            (ActorKind::Anonymous, None) => "unauthenticated".to_owned(),
        }
    }

    /// What the caller is known by where its requests are limited; `None` where only its address is
    /// known. An address proves nothing, and a certificate is the same wherever it comes from;
    /// those of all operators may have one name.
    #[must_use]
    pub fn known_as(&self) -> Option<String> {
        match (self.actor.kind, &self.certificate) {
            (ActorKind::Anonymous, None) => None,
            (ActorKind::Anonymous, Some(shown)) => Some(format!("cert:{}", shown.fingerprint)),
            _ => Some(self.label()),
        }
    }

    /// Refuses a caller that gave a token that is not valid, without a reason.
    ///
    /// # Errors
    /// 403; 503 where it is not known yet.
    pub fn accepted(&self) -> Result<(), Refusal> {
        match self.refusal {
            Some(refusal) => Err(refusal.at_large()),
            None => Ok(()),
        }
    }

    /// Whether the caller may do everything: ACLs are off, or the token is a management token.
    #[must_use]
    pub fn is_management(&self) -> bool {
        self.acl.is_management()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_no_manager() {
        assert!(Identity::open("127.0.0.1").is_management());
        assert!(!Identity::node("n", "127.0.0.1").is_management());
        assert!(!Identity::default().is_management());
        assert_eq!(Identity::server("s", "core-gc").actor.name, "core-gc");
    }

    fn made() -> PeerCertificate {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut requested = rcgen::CertificateParams::default();
        let name = rcgen::DnType::CommonName;
        requested.distinguished_name.push(name, "cli.global.nomad");
        let made = requested.self_signed(&key).unwrap();
        PeerCertificate::of(made.der()).unwrap()
    }

    #[test]
    fn auth_07_a_label_says_what_was_proved_and_a_certificate_where_nothing_else_was() {
        let token = AclToken {
            accessor_id: "a".into(),
            secret_id: "canary".into(),
            ..AclToken::default()
        };
        let acl = Arc::new(Acl::denied());
        let shown = Arc::new(made());
        for (mut identity, plain, with) in [
            (
                Identity::open("10.0.0.1"),
                "unauthenticated",
                "cli.global.nomad:10.0.0.1",
            ),
            (
                Identity::refused("10.0.0.1", Rejection::Unknown),
                "unauthenticated",
                "cli.global.nomad:10.0.0.1",
            ),
            (Identity::node("n", "10.0.0.1"), "client:n", "client:n"),
            (
                Identity::bearer(Arc::new(token), "10.0.0.1", acl),
                "token:a",
                "token:a",
            ),
        ] {
            assert_eq!(identity.label(), plain);
            identity.certificate = Some(Arc::clone(&shown));
            assert_eq!(identity.label(), with);
        }
    }

    #[test]
    fn who_shows_a_certificate_is_known_by_it_and_not_by_its_name() {
        let known = |shown: &PeerCertificate, addr: &str| {
            let mut identity = Identity::open(addr);
            identity.certificate = Some(Arc::new(shown.clone()));
            identity.known_as().unwrap()
        };
        let (one, other) = (made(), made());
        assert_eq!(one.common_name, other.common_name);
        assert_ne!(known(&one, "10.0.0.1"), known(&other, "10.0.0.1"));
        assert_eq!(known(&one, "10.0.0.1"), known(&one, "10.0.0.2"));
        assert_eq!(Identity::open("10.0.0.1").known_as(), None);
    }
}
