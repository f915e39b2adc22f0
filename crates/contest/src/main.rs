//! The program `redquorum-contest`.

fn main() -> std::process::ExitCode {
    redquorum_contest::main()
}
