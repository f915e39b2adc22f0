//! Settings: the client's environment variables.

use std::env;

use redquorum_scenario::client_protocol::{NODES_VARIABLE, OPTIONS_VARIABLE, Options};

/// The URLs of the masters, and the options of the lock.
///
/// # Errors
/// A variable is missing or wrong.
pub(crate) fn read() -> Result<(Vec<String>, Options), String> {
    let nodes = variable(NODES_VARIABLE)?;
    let nodes = nodes.split(',').map(str::trim).filter(|url| !url.is_empty());
    let options = serde_json::from_str(&variable(OPTIONS_VARIABLE)?)
        .map_err(|why| format!("{OPTIONS_VARIABLE} is not understood: {why}"))?;
    Ok((nodes.map(str::to_owned).collect(), options))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|why| {
        format!("{name}: {why}; this command is started by the harness, which sets it")
    })
}
