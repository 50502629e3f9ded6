//! Numbers of bytes that may be written with their unit: `512M`, `10G`; units are powers of ten.

use super::hcl1::{HclNode, HclValue};
use super::read::{BodyReader, FromNode};

/// Reads a size; another text is refused. An empty one is as if the setting was not there.
pub(super) fn size(bytes: &mut u64, name: &str, r: &mut BodyReader<'_>) {
    let mut size = Size(*bytes);
    r.set(name, &mut size);
    *bytes = size.0;
}

/// Reads a size of which 0 means no limit.
pub(super) fn size_above_zero(bytes: &mut Option<u64>, name: &str, r: &mut BodyReader<'_>) {
    let mut found = 0;
    size(&mut found, name, r);
    if found > 0 {
        *bytes = Some(found);
    }
}

#[derive(Clone, PartialEq)]
struct Size(u64);

impl FromNode for Size {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        let text = match &node.value {
            HclValue::String(text) if text.trim().is_empty() => return Ok(()),
            HclValue::String(text) | HclValue::Number(text) => text,
            other => return Err(format!("expected a size, not {}", other.kind())),
        };
        let wrong = || format!("cannot be {text:?}. Must be a size like 512M or 10G");
        self.0 = parse(text).ok_or_else(wrong)?;
        Ok(())
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let scale = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, load};
    use super::*;

    #[test]
    fn what_is_no_size_is_refused_wherever_a_size_is_asked_for() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("agent.hcl");
        let load_text = |text: &str| {
            std::fs::write(&path, text).expect("written");
            let mut config = Config::default();
            load(&mut config, std::slice::from_ref(&path))
                .map(|()| config)
                .map_err(|error| error.to_string())
        };
        for (before, name, after) in [
            ("server { ", "variables_quota", " }"),
            ("server { ", "job_max_source_size", " }"),
            ("server { retention { log { ", "bytes", " } } }"),
            ("server { retention { ", "segment_size", " } }"),
            ("limits { ", "max_body_bytes_in_flight", " }"),
        ] {
            for wrong in ["1GiB", "5T", "much", "-1"] {
                let refused = load_text(&format!("{before}{name} = {wrong:?}{after}"));
                let reported =
                    format!("{name}: cannot be {wrong:?}. Must be a size like 512M or 10G");
                assert!(
                    refused.is_err_and(|text| text.contains(&reported)),
                    "{reported}"
                );
            }
            let taken = load_text(&format!("{before}{name} = \"100M\"{after}"));
            assert!(taken.is_ok(), "{name}: {taken:?}");
        }
        let usual = Config::default().server.variables_quota;
        for (text, wanted) in [
            ("variables_quota = \"\"", usual),
            ("variables_quota = \" \"", usual),
            ("variables_quota = \"7K\"", 7_000),
        ] {
            let quota = load_text(&format!("server {{ {text} }}"));
            let quota = quota.map(|config| config.server.variables_quota);
            assert_eq!(quota, Ok(wanted), "{text}");
        }
        let quota = load_text("server { variables_quota = \"2G\" }").map(|config| config.server);
        assert_eq!(
            quota.map(|server| server.variables_quota),
            Ok(2_000_000_000)
        );
    }

    #[test]
    fn a_size_is_a_number_with_or_without_its_unit() {
        for (text, bytes) in [
            ("100", Some(100)),
            ("512k", Some(512_000)),
            (" 1 MB ", Some(1_000_000)),
            ("10G", Some(10_000_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551615K", None),
            ("1.5G", None),
            ("G", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }
}
