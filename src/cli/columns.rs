//! Text in columns, to the byte as the `columnize` library prints it.
//!
//! Cells are trimmed, empty ones shown as `<none>`, columns as wide as their widest cell and
//! parted by two spaces (` = ` for keys and values); the last cell of a line is not padded.

/// Prints rows; cells of one row may be fewer than of another.
fn columns(rows: &[Vec<String>], glue: &str) -> String {
    let shown = |cell: &String| {
        let cell = cell.trim();
        if cell.is_empty() {
            "<none>".to_owned()
        } else {
            cell.to_owned()
        }
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(shown).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        for (i, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(i) {
                Some(w) => *w = (*w).max(width),
                None => widths.push(width),
            }
        }
    }
    let mut out = String::new();
    for (n, row) in rows.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        for (i, cell) in row.iter().enumerate() {
            out.push_str(cell);
            if i + 1 < row.len() {
                let fill = widths[i] - cell.chars().count();
                out.extend(std::iter::repeat_n(' ', fill));
                out.push_str(glue);
            }
        }
    }
    out
}

/// A table: a head and rows.
pub(super) struct ColumnTable {
    rows: Vec<Vec<String>>,
}

impl ColumnTable {
    /// A table with this head.
    pub(super) fn new<const N: usize>(head: [&str; N]) -> ColumnTable {
        ColumnTable {
            rows: vec![head.iter().map(|h| (*h).to_owned()).collect()],
        }
    }

    /// A table whose head depends on flags.
    pub(super) fn with_head(head: Vec<&str>) -> ColumnTable {
        ColumnTable {
            rows: vec![head.into_iter().map(str::to_owned).collect()],
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no rows below its head.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl std::fmt::Display for ColumnTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&columns(&self.rows, "  "))
    }
}

/// Keys and values, aligned.
pub(super) fn pairs<K: AsRef<str>>(pairs: &[(K, String)]) -> String {
    let rows: Vec<Vec<String>> = pairs
        .iter()
        .map(|(k, v)| vec![k.as_ref().to_owned(), v.clone()])
        .collect();
    columns(&rows, " = ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_columnised() {
        let mut table = ColumnTable::new(["ID", "Type", "Status"]);
        table.row(["web".into(), "service".into(), "running".into()]);
        table.row(["größe".into(), String::new(), "dead".into()]);
        assert_eq!(
            table.to_string(),
            "ID     Type     Status\nweb    service  running\ngröße  <none>   dead"
        );
        let kv = pairs(&[("ID", "x".to_owned()), ("Long Key", String::new())]);
        assert_eq!(kv, "ID       = x\nLong Key = <none>");
        assert_eq!(
            columns(&[vec!["a".into()], vec!["bb".into(), "c".into()]], "  "),
            "a\nbb  c"
        );
    }
}
