//! Fields that are shown as a keyed hash, and to one reader in clear, by their names.
//!
//! What is hidden from one reader is what another needs: each destination may name such fields. A
//! name is checked against the [classes](crate::class) of fields; secrets are never shown.

use crate::class;
use crate::mask::Place;

/// Fields of the hashed [classes](crate::class::Class::is_hashed) that are shown in clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicFields(Vec<PublicField>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct PublicField {
    place: Place,
    /// Only what a map in the field has under this key.
    key: Option<String>,
}

impl PublicFields {
    /// Reads names: `Job.Meta` for a field, `Task.Config.image` for what a map in it has under a
    /// key.
    ///
    /// # Errors
    /// A name that is no hashed field's, with those there are.
    pub fn read(names: &[String]) -> Result<Self, String> {
        let fields = names.iter().map(|name| PublicField::read(name));
        fields.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a field, or what a map in it has under a key, is among them.
    #[must_use]
    pub fn show(&self, place: Place, key: Option<&str>) -> bool {
        let is = |field: &PublicField| field.place == place && field.key.as_deref() == key;
        self.0.iter().any(is)
    }
}

impl PublicField {
    fn read(name: &str) -> Result<Self, String> {
        let mut parts = name.splitn(3, '.');
        let (owner, field, key) = (parts.next(), parts.next(), parts.next());
        let hashed = || class::listed().filter(|(.., class)| class.is_hashed());
        let found = hashed().find(|(one, other, _)| Some(*one) == owner && Some(*other) == field);
        match found {
            Some((owner, field, _)) if key != Some("") => Ok(Self {
                place: (owner, field),
                key: key.map(str::to_owned),
            }),
            _ => {
                let named = hashed().map(|(owner, field, _)| format!("{owner}.{field}"));
                let mut listed: Vec<String> = named.collect();
                listed.sort_unstable();
                Err(format!(
                    "{name:?} is not shown as a keyed hash; fields that are: {}, and with a key of \
                     a map in them, as Task.Config.image",
                    listed.join(", ")
                ))
            }
        }
    }
}
