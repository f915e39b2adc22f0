//! Without an engine or an image, the error names the attempts and the remedy.

use std::{env, process::Command, time::Instant};

use redquorum_rig::{
    Containers, IMAGE_VARIABLE, REQUIRE_CONTAINERS_VARIABLE, RigError, trials::Case,
};

use crate::support::said;

const NO_ENGINE: (&str, &str) = ("DOCKER_HOST", "unix:///nowhere");

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: without_an_engine_the_error_says_what_was_tried,
        plain: an_engine_of_another_machine_is_refused,
        plain: without_an_engine_tests_are_ignored_and_where_it_is_required_they_fail,
        with_containers: a_missing_image_is_an_error_that_names_it_and_what_mends_it,
        with_containers: the_environment_names_the_image_and_the_caller_more_so,
    ]
}

fn without_an_engine_the_error_says_what_was_tried() {
    for part in ["engine", "start"] {
        let start = Instant::now();
        let said = said(part, &[NO_ENGINE]);
        assert!(
            said.starts_with("no container engine answers at DOCKER_HOST=unix:///nowhere: "),
            "{said}"
        );
        assert!(said.contains("set DOCKER_HOST"), "{said}");
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }
    // An engine that accepts connections and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    let said = said("engine", &[("DOCKER_HOST", &address)]);
    assert!(said.contains("silent for 2s"), "{said}");
}

fn an_engine_of_another_machine_is_refused() {
    let said = said("engine", &[("DOCKER_HOST", "tcp://192.0.2.1:2375")]);
    assert!(said.contains("it is one of another machine"), "{said}");
}

fn without_an_engine_tests_are_ignored_and_where_it_is_required_they_fail() {
    // Runs this program as a test harness, with this word as the filter.
    let harness = |required| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg("dead_master").env(NO_ENGINE.0, NO_ENGINE.1);
        let output = command.env(REQUIRE_CONTAINERS_VARIABLE, required).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = harness("0");
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("a_dead_master_cannot_be_paused ... ignored"), "{out}");
    assert!(err.contains("tests with containers are ignored: no container engine"), "{err}");

    let (code, out, err) = harness("1");
    assert_eq!(code, Some(101), "{out}");
    assert!(out.contains("a_dead_master_cannot_be_paused ... FAILED"), "{out}");
    assert!(err.contains("containers are required: no container engine"), "{err}");
}

fn a_missing_image_is_an_error_that_names_it_and_what_mends_it() {
    // No machine can pull this name, with or without a network.
    let name = "localhost:1/no-such-image:7";
    let error = Containers::builder().image(name).start().unwrap_err();
    assert!(matches!(error, RigError::NoImage { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the image {name} is not present and could not be pulled: "))
    );
    for mend in ["just image", "--image NAME", IMAGE_VARIABLE] {
        assert!(text.contains(mend), "{text}");
    }
}

fn the_environment_names_the_image_and_the_caller_more_so() {
    let present = Containers::builder().prepare().unwrap();
    let other = "localhost:1/other";
    let refused = said("start", &[(IMAGE_VARIABLE, other)]);
    assert!(refused.starts_with(&format!("the image {other} is not present")), "{refused}");
    let started = said("start", &[(IMAGE_VARIABLE, &present)]);
    assert_eq!(started.trim_end(), format!("started from {present}"));
    assert_eq!(Containers::builder().image(&present).prepare().unwrap(), present);
}
