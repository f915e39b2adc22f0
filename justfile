# What this project can do. Every recipe is a few cargo commands, or a script, under a shorter name.

# List the recipes.
default:
    @just --list --unsorted

# Run all tests. Those that need real masters say so where no redis-server is found.
test:
    cargo test --workspace

# Run the scenarios: break five masters, and check the lock; in containers where an engine replies.
chaos *args:
    .ci/chaos {{args}}

# Check real masters for settings that break a lock: `just doctor --masters redis://db1,redis://db2,redis://db3`.
doctor *args:
    cargo run --quiet -p redquorum-cli -- doctor {{args}}

# Run clients with deliberate bugs through all scenarios, and print which scenario catches which; `--real` on real masters, `--search` by chance.
mutants *args:
    cargo build --quiet -p redquorum-harness --bins
    cargo run --quiet -p redquorum-harness --example mutants -- {{args}}

# Run the commands whose tables the documents contain, and write the tables: half an hour; `just evidence mutants` for some.
evidence *args:
    cargo run --quiet -p redquorum-harness --example evidence -- {{args}}

# Prove the theorems, and tell what goes wrong without each assumption and rule: needs Python and Z3, one minute on two idle cores.
proof *args:
    python3 proof/prove.py {{args}}

# Let TLC examine the specification and its known failures: needs Python and Java, one to two minutes.
tla *args:
    python3 proof/tlc.py {{args}}

# Check that the runs of all scenarios, and random ones, take only steps of the proofs: `just refinement --runs 10000`.
refinement *args="--runs 1000":
    cargo run --quiet -p redquorum-harness -- run --backend sim --out target/proof/sim
    python3 proof/refinement.py target/proof/sim
    cargo run --profile search --quiet -p redquorum-harness -- search --histories - {{args}} | python3 proof/refinement.py -

# Look at every state of the library's machines, within bounds that are printed: one to two minutes, 5.4 GiB.
model-check *args:
    cargo run --profile search --quiet -p redquorum-harness -- model-check {{args}}

# Look for runs in which the lock breaks its promise, in virtual time; `just search --faults 2` for all schedules of two faults.
search *args:
    cargo run --profile search --quiet -p redquorum-harness -- search {{args}}

# Have a second program, written from the documents alone, judge all scenarios, all mutants and 100 000 random runs: half an hour.
second-opinion *args:
    cargo build --quiet -p redquorum-harness --bin redquorum-chaos --example mutants
    python3 proof/play_all.py target/debug {{args}}

# Many clients on real masters, under one fault at a time: `just soak --for 1h`.
soak *args:
    cargo run --quiet -p redquorum-harness --bin redquorum-soak -- {{args}}

# Run the scenarios on the locks of other libraries, and write docs/scoreboard.md: needs Python 3.11 and a network.
scoreboard *args:
    python3 harness/drivers/scoreboard.py {{args}}

# Check the templates of drivers; `just drivers --all` also the drivers of the scoreboard.
drivers *args:
    .ci/drivers {{args}}

# Start real masters (five, or as many as named), print their URLs, stop them on Ctrl-C.
masters count="5":
    cargo run --quiet -p redquorum-rig --bin masters -- {{count}}

# Build the image of a master from the installed redis-server, where none can be pulled.
image:
    .ci/image

# Test masters in containers: needs Docker.
containers *args:
    REDQUORUM_REQUIRE_CONTAINERS=1 cargo test -p redquorum-rig --test containers -- {{args}}

# Measure acquire and release beside a floor of bare connections and beside rslock. `just bench --quick` for a short run.
bench *args:
    cargo run --release -p redquorum-bench --features rslock -- {{args}}

# The same, while the lock exports metrics.
bench-metrics *args:
    cargo run --release -p redquorum-bench --features rslock,metrics -- {{args}}

# Measure what costs grow with: clients, distance, herds, shards; `just scale herd --waiters 4,200` for a part.
scale *args:
    cargo run --release --quiet -p redquorum-bench -- --scale {{args}}

# Compare locks for the last places of a sign-up on MariaDB, or SQLite: `just contest --quick` for correctness alone.
contest *args:
    cargo contest {{args}}

# Measure how many scenarios a second the simulation plays and checks.
bench-sim *args:
    cargo bench -p redquorum-harness --bench simulation -- {{args}}

# Check the format, lints and documentation. CI has a few lints more.
lint:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy --workspace --exclude redquorum-contest --all-targets --all-features -- -D warnings
    cargo clippy -p redquorum-contest --all-targets --all-features -- -D warnings
    cargo clippy -p redquorum --no-default-features -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude redquorum-contest --no-deps --all-features

# Check that the oldest supported Rust still builds everything but the drivers of databases.
msrv:
    .ci/msrv

# Run the tests that depend on the server on Redis 6.2, Redis 8.2 and Valkey 9.1.
servers *names:
    .ci/servers {{names}}

# Build the documents as a site, target/site/book, and check its links: the first time installs mdbook.
site:
    .ci/site

# Build the library's documentation and open it.
doc:
    cargo doc -p redquorum --no-deps --all-features --open

# All that CI runs.
ci:
    .ci/run
