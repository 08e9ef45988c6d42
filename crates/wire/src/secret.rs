//! A text that must not reach a log.

use std::fmt;

/// A password or the like. `Debug` and `Display` show asterisks only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_masked() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "*** *** Some(***)"
        );
        assert_eq!(secret.expose(), "hunter2");
    }
}
