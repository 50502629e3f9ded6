//! A user of a volume, as it is written on the disk of a node, and names as parts of paths.

/// A user of a volume, as its file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The volume's namespace.
    pub namespace: String,
    pub volume: String,
    /// The plugin's own name for it.
    pub remote: String,
    pub alloc: String,
}

impl Mark {
    pub(crate) fn text(&self) -> String {
        let fields = [&self.namespace, &self.volume, &self.remote, &self.alloc];
        let fields = fields.map(|field| part(field));
        format!("{}\n", fields.join("\n"))
    }

    pub(crate) fn parse(text: &str) -> Option<Mark> {
        let mut fields = text.strip_suffix('\n')?.split('\n').map(whole);
        let mut next = || fields.next().flatten();
        Some(Mark {
            namespace: next()?,
            volume: next()?,
            remote: next()?,
            alloc: next()?,
        })
    }
}

/// A name as one part of a path: what would lead elsewhere is written as numbers.
pub fn part(name: &str) -> String {
    if name.is_empty() || name == "." || name == ".." {
        return format!("%{}", name.len());
    }
    let plain = |c: &char| !matches!(c, '/' | '\0' | '%' | '\n');
    let mut text = String::new();
    for c in name.chars() {
        match plain(&c) {
            true => text.push(c),
            false => text.push_str(&format!("%{:02x}", u32::from(c))),
        }
    }
    text
}

/// The name that is written so.
pub(crate) fn whole(part: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = part;
    if let Some(dots) = match part {
        "%0" => Some(""),
        "%1" => Some("."),
        "%2" => Some(".."),
        _ => None,
    } {
        return Some(dots.to_owned());
    }
    while let Some((plain, written)) = rest.split_once('%') {
        name.push_str(plain);
        let number = u32::from_str_radix(written.get(..2)?, 16).ok()?;
        name.push(char::from_u32(number)?);
        rest = &written[2..];
    }
    name.push_str(rest);
    Some(name)
}
