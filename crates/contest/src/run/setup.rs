//! What a run needs: connections, masters, the network in front of both, and the strategy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Plan, try_to_sign_up};
use crate::{
    database::{Database, Pool, Target, create_recruitments},
    fault::{TIMEOUT, TTL},
    masters::{MasterSet, Source, redirected},
    network::Network,
    results::Fault,
    strategy::{Application, Context, Kind, Pause, Strategy},
    tally::Tally,
};

/// The connections of an application, as many as common pools open by default.
const CONNECTIONS: u32 = 10;

pub(crate) struct Environment {
    pub(crate) database: Database,
    /// A connection that no applicant uses.
    pub(crate) admin: Pool,
    pub(crate) source: Source,
    /// The masters of runs that break none.
    shared: Option<MasterSet>,
    next: i64,
}

impl Environment {
    pub(crate) async fn new(database: Database, source: Source) -> Result<Self, String> {
        let admin = Pool::connect(&database.target, 1).await;
        let admin = admin.map_err(|error| error.to_string())?;
        Ok(Self { database, admin, source, shared: None, next: 1 })
    }
}

pub(super) struct Setup {
    pub(super) kind: Kind,
    pub(super) strategy: Strategy,
    pub(super) pool: Pool,
    pub(super) tally: Tally,
    pub(super) first: i64,
    pub(super) applicants: i64,
    pub(super) context: Context,
    pub(super) target: Target,
    pub(super) timeout: Duration,
    /// Masters of this run alone.
    own: Option<MasterSet>,
    /// In front of the servers, if it changes something.
    pub(super) network: Option<Network>,
}

impl Setup {
    pub(super) async fn set_up(environment: &mut Environment, plan: &Plan) -> Result<Self, String> {
        let shape = plan.workload.shape();
        let first = environment.next;
        environment.next += shape.recruitments;
        create_recruitments(&environment.admin, first, shape.recruitments, shape.capacity)
            .await
            .map_err(|error| format!("the recruitment cannot be created: {error}"))?;
        let delay = Duration::from_millis(u64::from(plan.network_ms));
        let replicas = plan.fault == Some(Fault::ReplicaPromoted);
        let needed = !delay.is_zero() || replicas || plan.fault == Some(Fault::CommitReplyLost);
        let failed = |error: std::io::Error| format!("the network does not start: {error}");
        let network = needed.then(|| Network::start(delay)).transpose().map_err(failed)?;
        let mut target = environment.database.target.clone();
        if let (Some(network), Some(address)) = (&network, target.address()) {
            target = target.through(network.before_database(address).map_err(failed)?);
        }
        let mut context = Context {
            masters: Vec::new(),
            ttl: plan.fault.map_or(TTL, Fault::ttl),
            prefix: format!("redquorum-contest:{:08x}:", rand::random::<u32>()),
        };
        let mut own = None;
        if plan.kind.needs().uses_redis() {
            let breaks = plan.fault.is_some_and(|fault| {
                !matches!(fault, Fault::PausePastTtl | Fault::CommitReplyLost)
            });
            let masters = if breaks {
                own.insert(MasterSet::start(&environment.source, replicas).await?)
            } else if let Some(shared) = &mut environment.shared {
                shared
            } else {
                environment.shared.insert(MasterSet::start(&environment.source, false).await?)
            };
            context.masters.clone_from(&masters.urls);
            if let Some(network) = &network {
                for (number, upstream) in (1..).zip(masters.sockets()?) {
                    let address = network.before_master(number, upstream).map_err(failed)?;
                    let url = &mut context.masters[number - 1];
                    *url = redirected(url, address)?;
                }
            }
        }
        let pool = Pool::connect(&target, CONNECTIONS).await;
        let pool = pool.map_err(|error| format!("no connection to the database: {error}"))?;
        let wanted = u32::try_from(shape.applicants).unwrap_or(u32::MAX);
        let warm = wanted.min(CONNECTIONS);
        pool.warm_up(warm).await.map_err(|error| format!("too few connections: {error}"))?;
        let strategy = plan.kind.build(&context).await?;
        Ok(Self {
            kind: plan.kind,
            strategy,
            pool,
            tally: Tally::default(),
            first,
            applicants: shape.applicants,
            context,
            target,
            timeout: plan.fault.map_or(TIMEOUT, Fault::timeout),
            own,
            network,
        })
    }

    pub(super) async fn apply(
        self: Arc<Self>,
        recruitment: i64,
        volunteer: i64,
        pause: Option<Arc<Pause>>,
    ) {
        let start = Instant::now();
        let (pool, deadline) = (self.pool.clone(), start + self.timeout);
        let application = Application { pool, recruitment, volunteer, deadline, pause };
        let applying = try_to_sign_up(&self.strategy, self.kind, &application, &self.tally);
        self.tally.end(start, applying.await);
    }

    pub(super) fn masters(&self) -> Result<&MasterSet, String> {
        self.own.as_ref().ok_or_else(|| "there are no masters to break".to_owned())
    }

    /// Promotes the replica of the first master, to which the network then leads.
    pub(super) fn fail_over(&self) -> Result<(), String> {
        if let (Some(address), Some(network)) = (self.masters()?.fail_over()?, &self.network) {
            network.lead_to(1, address);
        }
        Ok(())
    }
}
