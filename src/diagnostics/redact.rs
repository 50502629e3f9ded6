//! What of an environment or a command line is hidden.
//!
//! Names decide, and the looks of a value where its name says nothing: better one value too many is
//! hidden than one too few shown.

/// What stands where a secret was.
pub const REDACTED: &str = "<redacted>";

/// Parts of names whose values are hidden.
const NAMES: [&str; 16] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PWD_",
    "CREDENTIAL",
    "PRIVATE",
    "KEY",
    "AUTH",
    "SESSION",
    "COOKIE",
    "LICENSE",
    "ENCRYPT",
    "SIGNATURE",
    "DSN",
];

/// Names that hold such a part and are harmless.
const HARMLESS: [&str; 5] = [
    "SSH_AUTH_SOCK",
    "XDG_SESSION_ID",
    "XDG_SESSION_TYPE",
    "DESKTOP_SESSION",
    "NOMAD_CLIENT_KEY",
];

/// Whether the value of this name is kept to oneself.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    !HARMLESS.contains(&name.as_str())
        && (NAMES.iter().any(|part| name.contains(part)) || name.ends_with("PASS"))
}

/// Whether a value gives itself away: a key, a signed token, an id that opens something.
fn gives_itself_away(value: &str) -> bool {
    value.contains("-----BEGIN")
        || value.starts_with("eyJ")
        || uuid::Uuid::try_parse(value.trim()).is_ok()
}

/// The value of a name as it may be shown.
pub fn value(name: &str, value: &str) -> String {
    match !value.is_empty() && (is_secret(name) || gives_itself_away(value)) {
        true => REDACTED.to_owned(),
        false => whole(value),
    }
}

/// A text that may be one address as a whole: a password that was written as it is may hold spaces
/// and quotation marks too.
fn whole(text: &str) -> String {
    let of_scheme = |one: char| one.is_ascii_alphanumeric() || "+-.:".contains(one);
    match text.split_once("://") {
        Some((scheme, place)) if scheme.chars().all(of_scheme) => {
            format!("{scheme}://{}", covered(place))
        }
        _ => without_password(text),
    }
}

/// A text whose addresses show no password (`scheme://user:password@host`).
fn without_password(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|one: char| one.is_whitespace() || one == '"');
        let (place, tail) = after.split_at(end.unwrap_or(after.len()));
        out.push_str(&covered(place));
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// What stands behind `://`. A password that was written as it is may hold any sign, those that end
/// a host elsewhere too, there may be another address in this one, and a token may stand in the
/// place of the user: so where there may be a password, all up to the last sign that may end one is
/// hidden, better too much of it.
fn covered(place: &str) -> String {
    let Some((before, host)) = place.rsplit_once('@') else {
        return place.to_owned();
    };
    let authority = place.split(['/', '?', '#']).next().unwrap_or_default();
    match before.contains(':') || authority.contains('@') {
        true => format!("{REDACTED}@{host}"),
        false => place.to_owned(),
    }
}

/// A text that is one address, which may name a user without a scheme (`git::user@host:path`).
/// What follows the question mark may be a key.
fn address(text: &str) -> String {
    let reported = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, place)), _) if !scheme.contains('@') => {
            format!("{scheme}://{}", covered(place))
        }
        (_, Some((_, host))) => format!("{REDACTED}@{host}"),
        (_, None) => text.to_owned(),
    };
    let place = reported.split(['?', '#']).next().unwrap_or_default();
    place.to_owned()
}

/// A text without passwords of addresses.
pub fn text(text: &str) -> String {
    without_password(text)
}

/// Fields of the API's objects that hold what their owner wrote, which may include secrets.
/// Documents do not say of which struct an object is, and a class belongs to a field of a struct:
/// therefore names are listed here, and apply wherever they occur. All sensitive fields of a job
/// have to be covered.
const WHOLE: [&str; 18] = [
    "GetterHeaders",
    "GetterOptions",
    "MountFlags",
    "Add",
    "Set",
    "Args",
    "Body",
    "Header",
    "Env",
    "Config",
    "EmbeddedTmpl",
    "Payload",
    "Source",
    "Items",
    "Variables",
    "VariableFlags",
    "Headers",
    "Params",
];

/// Takes from a document of the API what may be a secret.
pub fn json(value: &mut serde_json::Value) {
    use serde_json::Value as Json;
    match value {
        Json::Object(fields) => {
            for (name, field) in fields {
                let some = !matches!(field, Json::Null | Json::Bool(_) | Json::Number(_));
                let hidden = WHOLE.contains(&name.as_str()) || (name != "Key" && is_secret(name));
                match field {
                    // Events carry their objects in a payload.
                    Json::Object(_) if name == "Payload" => json(field),
                    _ if hidden && some => *field = Json::String(REDACTED.to_owned()),
                    Json::String(text) if name == "GetterSource" => *text = address(text),
                    _ => json(field),
                }
            }
        }
        Json::Array(all) => all.iter_mut().for_each(json),
        Json::String(text) if is_key(text) => *text = REDACTED.to_owned(),
        Json::String(text) => *text = whole(text),
        _ => {}
    }
}

/// Whether a text is a key or a signed token, whatever it is called.
fn is_key(text: &str) -> bool {
    text.contains("PRIVATE KEY-----") || (text.starts_with("eyJ") && text.contains('.'))
}

/// The words of a command line as they may be shown.
pub fn words(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut of_secret = false;
    let reported = words.map(|word| {
        let flag = word.starts_with('-');
        if std::mem::take(&mut of_secret) && !flag {
            return REDACTED.to_owned();
        }
        match word.split_once('=') {
            Some((name, text)) => format!("{name}={}", value(name, text)),
            None => {
                of_secret = flag && is_secret(&word) && !word.ends_with("-file");
                value("", &word)
            }
        }
    });
    reported.collect()
}

#[cfg(test)]
mod tests {
    use drover_events::class::Class;
    use drover_events::field::{Kind, Shape, Specified};
    use drover_events::model::Job;

    use super::*;

    #[test]
    fn mod_23_what_may_be_a_secret_is_not_told() {
        for (name, secret) in [
            ("NOMAD_TOKEN", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("db_password", "x"),
            ("MYSQL_PASS", "x"),
            ("Http-Auth", "x"),
            ("PLAIN", "4c7f2a44-4f3d-4f0f-9a0e-0f6f3b2f1a11"),
            ("PLAIN", "eyJhbGciOiJSUzI1NiJ9.e30.sig"),
            ("PLAIN", "-----BEGIN EC PRIVATE KEY-----\nabc"),
        ] {
            assert_eq!(value(name, secret), REDACTED, "{name}");
        }
        for (name, plain) in [
            ("PATH", "/usr/bin:/bin"),
            ("NOMAD_CLIENT_KEY", "/etc/nomad/client-key.pem"),
            ("NOMAD_TOKEN", ""),
            ("COMPASS", "north"),
            ("PROXY", "http://proxy:3128/a/b?c=d"),
        ] {
            let shown = if name == "COMPASS" { REDACTED } else { plain };
            assert_eq!(value(name, plain), shown, "{name}");
        }
        let url = "see postgres://app:hunter2@db:5432/x and https://bot:t@h";
        let reported = format!("see postgres://{REDACTED}@db:5432/x and https://{REDACTED}@h");
        assert_eq!(value("DATABASE_URL", url), reported);
    }

    /// Addresses with a password, and what is shown of them; `*` is what stands in its place.
    const ADDRESSES: [(&str, &str); 22] = [
        ("https://me:canary@h/x", "https://*@h/x"),
        ("https://canary@h/x", "https://*@h/x"),
        ("https://canary:@h/x", "https://*@h/x"),
        ("https://canary:x-oauth-basic@h/x", "https://*@h/x"),
        ("https://x-access-token:canary@h/x", "https://*@h/x"),
        ("https://canary@h/x:y@z", "https://*@z"),
        ("https://h/x?url=https://me:canary@b/y", "https://*@b/y"),
        (
            "git::https://h/x?checksum=file:https://me:canary@h/sums",
            "git::https://*@h/sums",
        ),
        ("https://a/x;https://me:canary@b", "https://*@b"),
        ("https://a/x&https://me:canary@b", "https://*@b"),
        ("https://ci.bot:/canary@h/x", "https://*@h/x"),
        ("https://john.doe:12/canary@h/x", "https://*@h/x"),
        ("https://me:12/canary@h", "https://*@h"),
        ("https://me:/canary@h", "https://*@h"),
        ("https://me:./canary@h", "https://*@h"),
        ("https://me:),canary@h", "https://*@h"),
        ("https://me:ca://nary@h", "https://*@h"),
        ("https:///me:canary@h", "https://*@h"),
        ("kafka://a:9092,me:canary@b", "kafka://*@b"),
        ("https://me:canary@h/x@1.2", "https://*@1.2"),
        // It might be a user and a password with such a sign.
        ("https://h:8080/x@y", "https://*@y"),
        ("http://[::1]:80/x@y", "http://*@y"),
    ];

    #[test]
    fn mod_23_nothing_of_a_password_in_an_address_is_told_wherever_it_stands() {
        for (address, reported) in ADDRESSES {
            let reported = reported.replace('*', REDACTED);
            assert_eq!(text(address), reported);
            assert_eq!(value("PLACE", address), reported);
            let two = format!("{address} and \"{address}\", then me@h");
            let both = format!("{reported} and \"{reported}\", then me@h");
            assert_eq!(text(&two), both);
        }
        // The end of an address is known where it is all that there is.
        for whole in [
            "https://me:ca nary@h/x",
            "https://me:ca\"nary@h/x",
            "git::https://me:c a \"nary\"@h/x",
        ] {
            let reported = value("PLACE", whole);
            assert!(reported.ends_with("https://<redacted>@h/x"), "{reported}");
            let mut document = serde_json::json!([whole]);
            json(&mut document);
            assert_eq!(document[0], reported);
        }
        for plain in [
            "https://example.com/a/b?c=d",
            "https://example.com/@team/app@1.2",
            "kafka://a:9092,b:9092",
            "sha256:0a1b2c3d",
            "md5:0a1b2c3d",
            "sha1:0a1b2c3d",
            "sha512:0a1b2c3d",
            "https://h/x?checksum=sha256:0a1b2c3d",
            "me@example.com",
        ] {
            assert_eq!(text(plain), plain);
            assert_eq!(value("PLACE", plain), plain);
        }
    }

    #[test]
    fn mod_23_of_an_artifact_its_place_is_told_and_nobody_who_asks_there() {
        let sources = ADDRESSES.into_iter().map(|(source, reported)| {
            let place = reported.split('?').next().unwrap_or_default();
            (source, place.to_owned())
        });
        let more = [
            ("git::me:canary@h:team/x", "*@h:team/x"),
            ("canary@h:team/x", "*@h:team/x"),
            ("me:canary@h/x://b", "*@h/x://b"),
            ("https://me:can ary@h/x", "https://*@h/x"),
            ("https://me:ca?nary@h/x", "https://*@h/x"),
            ("https://h/x?sshkey=can@ary", "https://h/x"),
            ("https://h/x#canary", "https://h/x"),
            ("git::https://h/x.git", "git::https://h/x.git"),
            ("local/file", "local/file"),
        ];
        let more = more.map(|(source, place)| (source, place.to_owned()));
        for (source, place) in sources.chain(more) {
            let mut artifact = serde_json::json!({ "GetterSource": source });
            json(&mut artifact);
            assert_eq!(
                artifact["GetterSource"],
                place.replace('*', REDACTED),
                "{source}"
            );
        }
    }

    /// Each sign is looked at a few times, however many of them there are.
    #[test]
    fn mod_23_a_long_text_of_nothing_but_such_signs_is_gone_through_once() {
        let long = |part: &str| part.repeat((1 << 20) / part.len());
        for plain in ["://", "@", ":", ":// ", "@ ", "a"].map(long) {
            assert_eq!(text(&plain), plain);
        }
        assert_eq!(text(&long("://@")), format!("://{REDACTED}@"));
        let apart = text(&long("://me:canary@h "));
        assert!(!apart.contains("canary"));
    }

    #[test]
    fn mod_23_a_document_tells_nothing_that_its_owner_wrote_in_secret() {
        let mut event = serde_json::json!({"Events": [{"Key": "web", "Payload": {"Job": {
            "ID": "web", "Payload": "canary", "Stop": false, "Meta": {"db_password": "canary"},
            "Tasks": [{"Env": {"A": "canary"}, "Config": {"args": ["canary"]}, "Name": "t",
                "Templates": [{"EmbeddedTmpl": "canary", "DestPath": "x"}],
                "Services": [{"Checks": [{"Header": {"X-Key": ["canary"]}, "Body": "canary",
                    "Args": ["-p", "canary"], "Name": "c"}]}],
                "Certificate": "-----BEGIN EC PRIVATE KEY-----canary", "Jwt": "eyJh.canary",
                "Passwords": ["canary"], "Auth": {"a": "canary"},
                "Artifacts": [{"GetterSource": "https://me:canary@host/x?sshkey=canary"}]}],
        }}}], "SecretID": "canary", "Index": 7});
        json(&mut event);
        let text = event.to_string();
        assert!(!text.contains("canary"), "{text}");
        let job = &event["Events"][0]["Payload"]["Job"];
        assert_eq!(job["ID"], "web");
        assert_eq!(job["Stop"], false);
        assert_eq!(job["Tasks"][0]["Name"], "t");
        assert_eq!(
            (&event["Events"][0]["Key"], &event["Index"]),
            (&"web".into(), &7.into())
        );
    }

    /// What a block says that is sensitive, where each field is a text or has one in it.
    fn secrets_of(shape: &Shape) -> serde_json::Value {
        let mut out = serde_json::Map::new();
        for field in shape.fields {
            let value = match (field.kind, field.class) {
                (Kind::Strs, Class::Sensitive) => serde_json::json!(["canary"]),
                (Kind::StrsMap, Class::Sensitive) => serde_json::json!({ "x": ["canary"] }),
                (kind, Class::Sensitive) if kind.is_map() => serde_json::json!({ "x": "canary" }),
                (_, Class::Sensitive) => "canary".into(),
                (_, Class::Address) => "https://me:canary@host/x?key=canary".into(),
                (kind, _) => match kind.shape() {
                    Some((inner, _)) => secrets_of(inner),
                    None => continue,
                },
            };
            out.insert(field.json.to_owned(), value);
        }
        out.into()
    }

    #[test]
    fn mod_23_what_a_job_says_that_is_sensitive_is_not_told() {
        let mut job = secrets_of(Job::SHAPE);
        let count = job.to_string().matches("canary").count();
        assert!(count > 20, "{count}");
        json(&mut job);
        let reported = format!("{job:#}");
        let line = reported.lines().find(|line| line.contains("canary"));
        assert_eq!(line, None);
    }

    #[test]
    fn mod_23_a_command_line_tells_no_secret_in_any_form() {
        let line = "drover agent -dev -encrypt abc= -encrypt=def -token-file f --secret ghi -x y";
        let reported = words(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            reported,
            format!(
                "drover agent -dev -encrypt {REDACTED} -encrypt={REDACTED} -token-file f \
                 --secret {REDACTED} -x y"
            )
        );
    }
}
