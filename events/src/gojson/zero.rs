//! What counts as the zero value of a Go type.

use std::sync::Arc;

/// A type with Go's notion of a zero value.
pub trait Zero {
    /// For the binary form: true when the value equals its type's default, which is left out.
    fn is_zero(&self) -> bool;

    /// For JSON that omits empty fields: true when the value is zero or has no elements. A list or
    /// map that is empty and not `null` is blank without being zero.
    fn is_blank(&self) -> bool {
        self.is_zero()
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Zero for $t {
            fn is_zero(&self) -> bool {
                *self == 0 as $t
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl Zero for f64 {
    fn is_zero(&self) -> bool {
        // Negative zero is kept, so that a copy equals its source bit by bit.
        self.to_bits() == 0
    }
}

impl Zero for bool {
    fn is_zero(&self) -> bool {
        !*self
    }
}

impl Zero for String {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Zero for Option<T> {
    fn is_zero(&self) -> bool {
        self.is_none()
    }
}

impl<T> Zero for Vec<T> {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Zero for std::collections::BTreeMap<K, V> {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Zero + ?Sized> Zero for Box<T> {
    fn is_zero(&self) -> bool {
        (**self).is_zero()
    }

    fn is_blank(&self) -> bool {
        (**self).is_blank()
    }
}

impl<T: Zero + ?Sized> Zero for Arc<T> {
    fn is_zero(&self) -> bool {
        (**self).is_zero()
    }

    fn is_blank(&self) -> bool {
        (**self).is_blank()
    }
}

impl Zero for serde_json::Value {
    fn is_zero(&self) -> bool {
        self.is_null()
    }
}
