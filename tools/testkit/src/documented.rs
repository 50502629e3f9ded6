//! The clients on the page for readers of events, as they stand there.

const PAGE: &str = include_str!("../../../src/docs/consuming-events.md");

/// The program behind `client: NAME` in its first line.
///
/// # Panics
/// When there is none of that name.
pub fn client(name: &str) -> String {
    let blocks = PAGE.split("\n```").skip(1).step_by(2);
    let mut programs = blocks.filter_map(|block| block.split_once('\n').map(|(_, text)| text));
    let is = |text: &&str| {
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches(['#', '/', ' ']) == format!("client: {name}")
    };
    let found = programs.find(is);
    found
        .unwrap_or_else(|| panic!("no client {name} on the page"))
        .to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn four_clients_are_on_the_page() {
        for (name, word) in [
            ("curl", "jq"),
            ("python", "urllib"),
            ("go", "package main"),
            ("kcat", "isolation.level"),
        ] {
            let text = super::client(name);
            assert!(
                text.contains(word) && !text.contains("```"),
                "{name}: {text}"
            );
        }
    }
}
