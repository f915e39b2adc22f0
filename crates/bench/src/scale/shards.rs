pub(super) fn print(_: usize, _: &[usize], _: usize) -> Result<(), String> { Ok(()) }
