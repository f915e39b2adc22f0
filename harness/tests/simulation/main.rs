//! The simulation from outside: a seed determines a run, the honest client passes every scenario,
//! and each mutant is caught.

mod blindness;
mod determinism;
mod library;
mod mutants;
mod pace;
mod starts;
mod support;
