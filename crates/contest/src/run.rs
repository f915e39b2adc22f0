//! One run: connects to its servers, lets applicants apply, injects a fault, counts rows.
//!
//! `setup.rs` connects, `paused.rs` is an applicant that is paused inside its critical section.

mod paused;
mod setup;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::distr::{Distribution, weighted::WeightedIndex};
use tokio::task::JoinSet;

pub(crate) use paused::child;
pub(crate) use setup::Environment;
use setup::Setup;

use crate::{
    database::{Pool, SqlError, count},
    fault::{TIMEOUT, not_offered},
    masters::Verb,
    results::{Fault, Figures, Outcome, Workload},
    strategy::{Application, ApplyError, Kind, Reply, Strategy},
    tally::Tally,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) workload: Workload,
    pub(crate) fault: Option<Fault>,
    pub(crate) network_ms: u32,
    pub(crate) repetition: u32,
    pub(crate) seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) recruitments: i64,
    pub(crate) capacity: i64,
    /// Applicants, or users who apply again and again.
    pub(crate) applicants: i64,
    /// Whether each applies once, all at the same time.
    pub(crate) at_once: bool,
}

impl Workload {
    pub(crate) const fn shape(self) -> Shape {
        const MILLION: i64 = 1_000_000;
        let (recruitments, capacity, applicants, at_once) = match self {
            Self::Rush => (1, 50, 100, true),
            Self::LastPlace => (1, 1, 2, true),
            Self::Throughput => (1, MILLION, 20, false),
            Self::Spread => (1_000, MILLION, 20, false),
        };
        Shape { recruitments, capacity, applicants, at_once }
    }
}

/// How many of 100 applicants apply while one is paused; the others apply after it.
const DURING: i64 = 60;
/// How long the others apply at most while the first one is paused, beyond the TTL.
const MOST: Duration = Duration::from_secs(2);
const HANG: Duration = Duration::from_secs(2);

pub(crate) async fn run(environment: &mut Environment, plan: &Plan) -> Outcome {
    let product = environment.database.target.product;
    if let Some(reason) = not_offered(plan.kind, plan.fault, product, &environment.source) {
        return Outcome::NotOffered { reason: reason.to_owned() };
    }
    let admin = environment.admin.clone();
    let result = tokio::select! {
        result = measured(environment, plan) => result,
        error = until_dead(&admin) => Err(format!("the database stopped responding: {error}")),
    };
    match result {
        Ok(figures) => Outcome::Measured(figures),
        Err(error) => Outcome::Failed { error },
    }
}

/// Waits until the database server is gone: applicants would retry for long.
async fn until_dead(admin: &Pool) -> String {
    const PERIOD: Duration = Duration::from_secs(1);
    loop {
        tokio::time::sleep(PERIOD).await;
        // A server that is only slow is given the time of an applicant.
        match tokio::time::timeout(TIMEOUT, admin.ping()).await {
            Ok(Err(error @ SqlError::Disconnected(_))) => return error.to_string(),
            Err(_) => return format!("no reply within {TIMEOUT:?}"),
            Ok(_) => {}
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2⁵³")]
async fn measured(environment: &mut Environment, plan: &Plan) -> Result<Figures, String> {
    let shape = plan.workload.shape();
    let setup = Arc::new(Setup::set_up(environment, plan).await?);
    let sent = || setup.pool.statements() + setup.tally.counts().child_statements;
    let (before, start) = (sent(), Instant::now());
    let result = apply(&setup, plan).await;
    let end = Instant::now();
    let statements = sent() - before;
    let connections = setup.pool.most_in_use() + setup.strategy.redis_connections();
    setup.strategy.finish().await;
    let commands = setup.strategy.redis_commands() + setup.tally.counts().child_commands;
    setup.pool.close().await;
    result?;
    let counted = count(&environment.admin, setup.first, shape.recruitments).await;
    let [rows, counter, lost_updates, oversold] =
        counted.map_err(|error| format!("the rows cannot be counted: {error}"))?;
    let mut tally = setup.tally.counts();
    let (accepted, refused, errors) = (tally.accepted(), tally.refused, tally.errors);
    let seconds = end.duration_since(start).as_secs_f64();
    let places = u64::try_from(shape.capacity * shape.recruitments).unwrap_or(0);
    let per_accepted = |count: u64| count as f64 / accepted.max(1) as f64;
    Ok(Figures {
        places,
        applications: accepted + refused + errors,
        accepted,
        refused,
        errors,
        rows,
        counter,
        lost_updates,
        oversold,
        deadlocks: tally.deadlocks,
        retries: tally.retries,
        seconds,
        per_second: accepted as f64 / seconds,
        latency: tally.latency(),
        stall_ms: tally.stall_ms(start, (rows < places).then_some(end)),
        statements: per_accepted(statements),
        redis_commands: per_accepted(commands),
        connections,
    })
}

async fn apply(setup: &Arc<Setup>, plan: &Plan) -> Result<(), String> {
    let shape = plan.workload.shape();
    match plan.fault {
        Some(fault) if fault.pauses_an_applicant() => with_a_paused_applicant(setup, fault).await,
        Some(fault @ (Fault::MasterKilled | Fault::MasterHung)) => {
            let mut applicants = rush(setup, 1..=shape.applicants);
            break_master(setup, fault, &mut applicants).await?;
            join_all(&mut applicants).await
        }
        Some(_) => {
            let network = setup.network.as_ref().ok_or("there is no network to break")?;
            network.lose_reply_of_a_commit();
            join_all(&mut rush(setup, 1..=shape.applicants)).await?;
            if network.has_lost_reply() {
                Ok(())
            } else {
                Err("no reply of a commit was lost: the fault did not happen".to_owned())
            }
        }
        None if shape.at_once => join_all(&mut rush(setup, 1..=shape.applicants)).await,
        None => users(setup, plan).await,
    }
}

fn rush(setup: &Arc<Setup>, volunteers: std::ops::RangeInclusive<i64>) -> JoinSet<()> {
    let mut applicants = JoinSet::new();
    for volunteer in volunteers {
        applicants.spawn(setup.clone().apply(setup.first, volunteer, None));
    }
    applicants
}

/// Users apply one application after another until the time is over.
async fn users(setup: &Arc<Setup>, plan: &Plan) -> Result<(), String> {
    let shape = plan.workload.shape();
    // Zipf's law: the probability of a rank is proportional to its reciprocal.
    let ranks = 1..=u32::try_from(shape.recruitments).unwrap_or(u32::MAX);
    let zipf = WeightedIndex::new(ranks.map(|rank| 1.0 / f64::from(rank)));
    let zipf = Arc::new(zipf.map_err(|error| error.to_string())?);
    let until = Instant::now() + Duration::from_secs(plan.seconds);
    let mut users = JoinSet::new();
    for user in 0..shape.applicants {
        let (setup, zipf) = (setup.clone(), zipf.clone());
        users.spawn(async move {
            let mut volunteer = user;
            while Instant::now() < until {
                volunteer += shape.applicants;
                let rank = i64::try_from(zipf.sample(&mut rand::rng())).unwrap_or(0);
                let recruitment = setup.first + rank;
                setup.clone().apply(recruitment, volunteer, None).await;
            }
        });
    }
    join_all(&mut users).await
}

async fn break_master(
    setup: &Arc<Setup>,
    fault: Fault,
    applicants: &mut JoinSet<()>,
) -> Result<(), String> {
    tokio::select! {
        () = setup.tally.some_accepted.notified() => {}
        result = join_all(applicants) => return result,
    }
    if fault == Fault::MasterKilled {
        return setup.masters()?.first(Verb::Kill);
    }
    setup.masters()?.first(Verb::Pause)?;
    tokio::time::sleep(HANG).await;
    setup.masters()?.first(Verb::Resume)
}

/// Pauses one applicant inside its critical section, injects the fault, lets others apply, resumes
/// the first one, which writes, and lets the rest apply.
async fn with_a_paused_applicant(setup: &Arc<Setup>, fault: Fault) -> Result<(), String> {
    if fault == Fault::ReplicaPromoted {
        setup.masters()?.first(Verb::Lag)?;
    }
    let mut first = paused::Paused::start(setup, fault).await?;
    match fault {
        Fault::RedisRestart => setup.masters()?.first(Verb::Restart)?,
        Fault::ReplicaPromoted => setup.fail_over()?,
        _ => {}
    }
    let start = Instant::now();
    let mut during = rush(setup, 2..=1 + DURING);
    let expires = if fault == Fault::PausePastTtl { fault.ttl() } else { Duration::ZERO };
    // Those that wait for the first applicant are still there when it goes on.
    if let Ok(result) = tokio::time::timeout(expires + MOST, join_all(&mut during)).await {
        result?;
    }
    let past = expires + expires / 5;
    tokio::time::sleep(past.saturating_sub(start.elapsed())).await;
    first.resume().await?;
    join_all(&mut during).await?;
    join_all(&mut rush(setup, 2 + DURING..=setup.applicants)).await
}

async fn join_all(tasks: &mut JoinSet<()>) -> Result<(), String> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| format!("an applicant's task ended: {error}"))?;
    }
    Ok(())
}

const ATTEMPTS: u32 = 500;
const MAX_PAUSE_MS: u64 = 32;

/// One applicant: tries until there is a reply.
async fn try_to_sign_up(
    strategy: &Strategy,
    kind: Kind,
    application: &Application,
    tally: &Tally,
) -> Result<Reply, String> {
    let mut commit_unknown = false;
    for attempt in 0..ATTEMPTS {
        tally.counts().retries += u64::from(attempt > 0);
        if commit_unknown && has_row(application).await {
            return Ok(Reply::Accepted);
        }
        let error = match strategy.apply(application).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        match &error {
            ApplyError::Sql(SqlError::Deadlock) => tally.counts().deadlocks += 1,
            ApplyError::Sql(SqlError::Disconnected(_)) => commit_unknown = true,
            ApplyError::Sql(SqlError::Duplicate) if commit_unknown => return Ok(Reply::Accepted),
            ApplyError::Sql(SqlError::Duplicate | SqlError::Other(_)) => {
                return Err(error.to_string());
            }
            _ => {}
        }
        // Without a lock the applicant gets the error, as in the program that the contest is about.
        if !kind.correct() || Instant::now() >= application.deadline {
            return Err(error.to_string());
        }
        let most = (1_u64 << attempt.min(5)).min(MAX_PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
    }
    Err(format!("not signed up after {ATTEMPTS} attempts"))
}

/// Whether an attempt whose commit has no known outcome signed the volunteer up.
async fn has_row(application: &Application) -> bool {
    const FIND: &str = "SELECT id FROM applicant WHERE recruitment_id = ? AND volunteer_id = ?";
    let Ok(mut session) = application.pool.session().await else { return false };
    let values = [application.recruitment, application.volunteer];
    session.fetch(FIND, &values).await.is_ok_and(|row| row.is_some())
}
