//! The program from the command line to `contest.json`, on SQLite and on MariaDB. Without MariaDB,
//! its tests print that they are skipped. With `REDQUORUM_REQUIRE_MARIADB=1` they fail instead.

mod faults;
mod input;
mod interrupt;
mod strategies;
mod support;
