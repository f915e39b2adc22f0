//! The program from the command line to `contest.json`, on SQLite and on MariaDB where it is
//! installed. Tests on MariaDB print that they are skipped where it is not; with
//! `REDQUORUM_REQUIRE_MARIADB=1` they fail instead.

mod faults;
mod input;
mod interrupt;
mod strategies;
mod support;
