//! Names of allocations: `job.group[index]`, taken from the lowest free index up.

use std::collections::BTreeSet;

/// The name of the allocation of a group with this index.
pub fn alloc_name(job: &str, group: &str, index: usize) -> String {
    format!("{job}.{group}[{index}]")
}

/// The index in an allocation's name, if it has one.
pub fn name_index(name: &str) -> Option<usize> {
    let rest = name.strip_suffix(']')?;
    let open = rest.rfind('[')?;
    rest[open + 1..].parse().ok()
}

/// Which indexes of a group's names are taken.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    prefix: String,
    count: usize,
    used: BTreeSet<usize>,
    lowest: usize,
}

impl NameIndex {
    /// Takes the indexes of `names`; names without an index take none.
    pub fn new<'a>(
        job: &str,
        group: &str,
        count: usize,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            prefix: format!("{job}.{group}"),
            count,
            used: names.into_iter().filter_map(name_index).collect(),
            lowest: 0,
        }
    }

    fn name(&self, index: usize) -> String {
        format!("{}[{index}]", self.prefix)
    }

    /// The `n` names with the highest indexes; they are free from then on.
    pub fn take_highest(&mut self, n: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        while names.len() < n {
            let Some(index) = self.used.pop_last() else {
                break;
            };
            self.lowest = self.lowest.min(index);
            names.insert(self.name(index));
        }
        names
    }

    /// Gives back the index of a name that is not to be stopped after all.
    pub fn take(&mut self, name: &str) {
        if let Some(index) = name_index(name) {
            self.used.insert(index);
        }
    }

    /// The next `n` names: free ones below the count, lowest first; then, as Nomad does, duplicates
    /// from 0 up.
    pub fn next(&mut self, n: usize) -> Vec<String> {
        let mut names = Vec::with_capacity(n);
        let mut index = self.lowest;
        while names.len() < n && index < self.count {
            if self.used.insert(index) {
                names.push(self.name(index));
            }
            index += 1;
        }
        self.lowest = index;
        let mut duplicate = 0;
        while names.len() < n {
            names.push(self.name(duplicate));
            self.used.insert(duplicate);
            duplicate += 1;
        }
        names
    }

    /// Names for `n` canaries: first those of the allocations that are to be replaced, then free
    /// ones, then ones beyond the count. `canaries` are the names of canaries that exist.
    pub fn next_canaries(
        &mut self,
        n: usize,
        canaries: &BTreeSet<&str>,
        replaced: &[&str],
    ) -> Vec<String> {
        let mut names = Vec::with_capacity(n);
        let mut indexes: Vec<usize> = replaced.iter().copied().filter_map(name_index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        for index in indexes {
            if names.len() == n {
                return names;
            }
            let name = self.name(index);
            if index < self.count && !canaries.contains(name.as_str()) {
                self.used.insert(index);
                names.push(name);
            }
        }
        for index in 0..self.count {
            if names.len() == n {
                return names;
            }
            let name = self.name(index);
            if !canaries.contains(name.as_str()) && self.used.insert(index) {
                names.push(name);
            }
        }
        let mut beyond = self.count;
        while names.len() < n {
            if self.used.insert(beyond) {
                names.push(self.name(beyond));
            }
            beyond += 1;
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(count: usize, used: &[usize]) -> NameIndex {
        let names: Vec<String> = used.iter().map(|i| alloc_name("j", "g", *i)).collect();
        NameIndex::new("j", "g", count, names.iter().map(String::as_str))
    }

    #[test]
    fn names_fill_gaps_first_and_then_repeat() {
        let mut names = index(4, &[0, 2]);
        assert_eq!(names.next(3), ["j.g[1]", "j.g[3]", "j.g[0]"]);
    }

    #[test]
    fn the_highest_names_go_first() {
        let mut names = index(5, &[0, 1, 2, 3, 4]);
        let highest = names.take_highest(2);
        assert_eq!(
            highest.into_iter().collect::<Vec<_>>(),
            ["j.g[3]", "j.g[4]"]
        );
        assert_eq!(names.next(1), ["j.g[3]"]);
    }

    #[test]
    fn canaries_take_the_names_of_what_they_replace_then_free_ones_then_more() {
        let mut names = index(3, &[0, 1, 2]);
        let got = names.next_canaries(3, &BTreeSet::from(["j.g[0]"]), &["j.g[1]", "j.g[0]"]);
        assert_eq!(got, ["j.g[1]", "j.g[3]", "j.g[4]"]);
    }

    #[test]
    fn an_index_is_read_from_the_end_of_a_name() {
        assert_eq!(name_index("a[3].g[12]"), Some(12));
        assert_eq!(name_index("plain"), None);
        assert_eq!(name_index("g[x]"), None);
    }
}
