//! What all examples share and what is not about locks: the addresses of the masters, and the error
//! of `main`.

use std::{env, error::Error, fmt};

/// The URLs in `REDQUORUM_URLS`, separated by commas.
pub(crate) fn urls() -> Result<Vec<String>, Failure> {
    let urls = env::var("REDQUORUM_URLS").unwrap_or_default();
    let urls: Vec<String> =
        urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect();
    if urls.is_empty() {
        return Err(Failure(
            "REDQUORUM_URLS is not set: run `just masters` (or `cargo run -p redquorum-rig --bin \
             masters`) in another terminal, and paste the line `export REDQUORUM_URLS=…` that it \
             prints into this one"
                .to_owned(),
        ));
    }
    Ok(urls)
}

/// The error of `main`. Rust prints its `Debug` to standard error and exits with 1; here `Debug` is
/// the sentence of the error.
pub(crate) struct Failure(String);

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
