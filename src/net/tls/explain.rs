//! What went wrong in a handshake, in words.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::verify::NotFor;

/// The kinds of faults that an operator can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The other end's certificate is of an authority that is not known here.
    UnknownAuthority,
    /// The other end's certificate has expired, or is not valid yet.
    Time,
    /// The other end's certificate is for another name.
    Name,
    /// The other end wants a certificate and got none.
    WantsCertificate,
    /// The other end does not take the certificate that it got.
    Refused,
    /// The other end does not speak TLS.
    NotTls,
    /// No version or suite in common.
    Incompatible,
    /// Anything else.
    Other,
}

/// What went wrong in a handshake, or at the first read after one.
#[must_use]
pub fn explain(error: &io::Error) -> (Fault, String) {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match (inner, error.kind()) {
        (Some(error), _) => of_tls(error),
        (
            None,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe,
        ) => {
            let text = "it ended the connection during the handshake: it may not speak TLS";
            (Fault::NotTls, text.to_owned())
        }
        _ => of_text(&error.to_string()),
    }
}

/// HTTP/2 passes on what was read from a connection as text alone.
fn of_text(text: &str) -> (Fault, String) {
    use AlertDescription as A;
    let named = text.split("received fatal alert: ").nth(1);
    let known = [
        A::CertificateRequired,
        A::UnknownCA,
        A::BadCertificate,
        A::UnsupportedCertificate,
        A::CertificateExpired,
        A::CertificateRevoked,
        A::CertificateUnknown,
        A::DecryptError,
        A::AccessDenied,
    ];
    let found = named.and_then(|named| {
        let of = |alert: &&A| named.starts_with(&format!("{alert:?}"));
        known.iter().find(of)
    });
    match found {
        Some(alert) => of_alert(*alert),
        None => (Fault::Other, text.to_owned()),
    }
}

fn of_tls(error: &Error) -> (Fault, String) {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::NoCertificatesPresented => {
            let text = "it showed no certificate".to_owned();
            (Fault::Other, text)
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            (Fault::NotTls, "it does not speak TLS".to_owned())
        }
        Error::PeerIncompatible(_) => {
            let text = format!("no version or cipher suite in common ({error})");
            (Fault::Incompatible, text)
        }
        _ => (Fault::Other, error.to_string()),
    }
}

fn of_certificate(error: &CertificateError) -> (Fault, String) {
    use CertificateError as E;
    let (fault, text) = match error {
        E::UnknownIssuer => (
            Fault::UnknownAuthority,
            "its certificate is signed by an unknown authority".to_owned(),
        ),
        // Authorities of one name are distinguished by what they signed.
        E::BadSignature => (
            Fault::UnknownAuthority,
            "its certificate is signed by an unknown authority (or one of the same name)"
                .to_owned(),
        ),
        E::Expired | E::ExpiredContext { .. } => {
            (Fault::Time, "its certificate has expired".to_owned())
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            (Fault::Time, "its certificate is not valid yet".to_owned())
        }
        E::NotValidForName => (
            Fault::Name,
            "its certificate is for another name".to_owned(),
        ),
        E::NotValidForNameContext {
            expected,
            presented,
        } => {
            let presented: Vec<_> = presented.iter().map(|name| plain(name)).collect();
            let presented = presented.join(", ");
            let expected = expected.to_str();
            let text = format!("its certificate is for {presented}, not for {expected}");
            (Fault::Name, text)
        }
        // Ours: it says for which names the certificate is.
        E::Other(why) if why.0.is::<NotFor>() => (Fault::Name, why.to_string()),
        E::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => (
            Fault::Other,
            "its certificate is an authority's own (CA:TRUE): it needs one that an authority signs"
                .to_owned(),
        ),
        E::Other(why) => (Fault::Other, format!("its certificate is no good ({why})")),
        _ => (
            Fault::Other,
            format!("its certificate is no good ({error})"),
        ),
    };
    (fault, text)
}

/// A name as it is written, out of `DnsName("a")`.
fn plain(shown: &str) -> &str {
    shown.split('"').nth(1).unwrap_or(shown)
}

fn of_alert(alert: AlertDescription) -> (Fault, String) {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => (
            Fault::WantsCertificate,
            "it wants a certificate and was shown none".to_owned(),
        ),
        A::UnknownCA
        | A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateExpired
        | A::CertificateRevoked
        | A::CertificateUnknown
        | A::DecryptError
        | A::AccessDenied => (
            Fault::Refused,
            format!("it does not take the certificate it was shown ({alert:?})"),
        ),
        A::ProtocolVersion | A::HandshakeFailure | A::InsufficientSecurity => (
            Fault::Incompatible,
            format!("no version or cipher suite in common, or it wants a certificate ({alert:?})"),
        ),
        _ => (Fault::Other, format!("it ended the handshake ({alert:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mended_is_told_apart() {
        let of = |error: Error| explain(&io::Error::other(error)).0;
        assert_eq!(
            of(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
            Fault::UnknownAuthority
        );
        assert_eq!(
            of(Error::InvalidCertificate(CertificateError::Expired)),
            Fault::Time
        );
        // What rustls has no word for is no fault of the name.
        let own = rustls::OtherError(std::sync::Arc::new(io::Error::other("CaUsedAsEndEntity")));
        let own = Error::InvalidCertificate(CertificateError::Other(own));
        let (fault, text) = explain(&io::Error::other(own));
        assert_eq!(fault, Fault::Other, "{text}");
        assert!(text.contains("an authority's own (CA:TRUE)"), "{text}");
        assert_eq!(
            of(Error::AlertReceived(AlertDescription::CertificateRequired)),
            Fault::WantsCertificate
        );
        assert_eq!(
            of(Error::AlertReceived(AlertDescription::UnknownCA)),
            Fault::Refused
        );
        assert_eq!(
            of(Error::InvalidMessage(InvalidMessage::InvalidContentType)),
            Fault::NotTls
        );
        assert_eq!(
            explain(&io::ErrorKind::UnexpectedEof.into()).0,
            Fault::NotTls
        );
        assert_eq!(explain(&io::ErrorKind::TimedOut.into()).0, Fault::Other);
    }
}
