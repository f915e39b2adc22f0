//! The values derived from `contest.json`: the recommendation and the page.

mod page;
mod recommend;
mod support;
