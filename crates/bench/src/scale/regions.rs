pub(super) fn print(_: &[u64], _: &[u64]) -> Result<(), String> { Ok(()) }
