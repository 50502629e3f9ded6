//! What a machine says about its processors.

use std::fs;
use std::path::Path;

/// MHz of a machine that says nothing about itself.
const FALLBACK_MHZ: u64 = 1000;

/// `/proc/cpuinfo`, as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CpuInfo {
    pub(super) model: String,
    /// Of each core.
    pub(super) mhz: u64,
    /// Their numbers.
    pub(super) cores: Vec<u16>,
}

fn parse(text: &str) -> CpuInfo {
    let mut out = CpuInfo::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key.trim() {
            "processor" => out.cores.extend(value.parse::<u16>().ok()),
            "model name" if out.model.is_empty() => out.model = value.to_owned(),
            "cpu MHz" => {
                let mhz = value.parse::<f64>().unwrap_or(0.0).round() as u64;
                out.mhz = out.mhz.max(mhz);
            }
            _ => {}
        }
    }
    out
}

/// What this machine says.
pub(super) fn read() -> CpuInfo {
    read_in(Path::new("/"))
}

/// What the files of a machine say whose root this is.
fn read_in(root: &Path) -> CpuInfo {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let mut info = parse(&text("proc/cpuinfo").unwrap_or_default());
    let base = "sys/devices/system/cpu/cpu0/cpufreq/";
    for name in ["base_frequency", "cpuinfo_max_freq"] {
        let khz = text(&format!("{base}{name}"));
        if let Some(khz) = khz.and_then(|t| t.trim().parse::<u64>().ok()) {
            info.mhz = khz / 1000;
            break;
        }
    }
    if info.mhz == 0 {
        info.mhz = FALLBACK_MHZ;
    }
    info
}

/// MHz of one core.
pub(super) fn core_mhz() -> u64 {
    read().mhz
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_09_cpuinfo_is_read() {
        let text = "processor\t: 0\nmodel name\t: EPYC\ncpu MHz\t\t: 2595.99\n\nprocessor\t: 1\n";
        let info = parse(text);
        assert_eq!(
            info,
            CpuInfo {
                model: "EPYC".into(),
                mhz: 2596,
                cores: vec![0, 1]
            }
        );
        assert_eq!(parse(""), CpuInfo::default());
    }

    #[test]
    fn the_speed_that_a_processor_is_made_for_counts_before_its_speed_now() {
        let tmp = tempfile::tempdir().unwrap();
        assert_eq!(read_in(tmp.path()).mhz, FALLBACK_MHZ, "nothing is said");
        let base = "sys/devices/system/cpu/cpu0/cpufreq";
        for (path, text, mhz) in [
            ("proc/cpuinfo".to_owned(), "cpu MHz\t\t: 799.8\n", 800),
            (format!("{base}/cpuinfo_max_freq"), "3600000\n", 3_600),
            (format!("{base}/base_frequency"), "2100000\n", 2_100),
        ] {
            let path = tmp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            assert_eq!(read_in(tmp.path()).mhz, mhz);
        }
    }
}
