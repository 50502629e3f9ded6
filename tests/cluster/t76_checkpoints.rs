//! How often a real server signs its log.

use std::fs;

use anyhow::{Context, Result, ensure};
use drover_testkit::{LONG, Setup, wait_for};

use crate::support::{Known, put};

#[test]
fn checkpoints_come_after_as_many_events_as_the_configuration_says() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    setup.config = "server {\n  enabled = true\n  bootstrap_expect = 1\n  \
                    checkpoint_events = 20\n  checkpoint_interval = \"1h\"\n}\n"
        .to_owned();
    let agent = setup.start()?;
    let path = setup.data_dir.join("server/checkpoints");
    // One line of a note is a number: the size of the tree.
    let sizes = || -> Result<Vec<u64>> {
        let text = fs::read_to_string(&path)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    };
    let mut known = Known::new();
    let mut http = agent.http();
    for round in 1..4 {
        for number in 0..25 {
            let answer = put(&mut http, &mut known, &format!("v/{number}"), "value")?;
            ensure!(answer.status == 200, "{}", answer.text());
        }
        // By their number alone: an hour does not pass.
        wait_for("a checkpoint", LONG, || {
            ensure!(sizes()?.len() >= round, "too few in round {round}");
            Ok(())
        })?;
    }
    let sizes = sizes()?;
    let first = sizes.first().context("no checkpoint")?;
    ensure!(*first >= 20, "{sizes:?}");
    for pair in sizes.windows(2) {
        ensure!(pair[1] - pair[0] >= 20, "{sizes:?}");
    }
    Ok(())
}
