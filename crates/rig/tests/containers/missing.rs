//! Without an engine or an image, the error names the attempts and the remedy.

use std::{net::TcpStream, time::Duration};

use redquorum_rig::{
    Masters, RigError,
    containers::{IMAGE_VARIABLE, REQUIRE_VARIABLE, prepare},
    trials::Case,
};

use crate::{
    both::tests_without,
    support::{containers, output_of},
};

const NO_ENGINE: (&str, &str) = ("DOCKER_HOST", "unix:///nowhere");

pub(crate) fn cases() -> Vec<Case> {
    cases![
        plain: without_an_engine_the_error_names_the_attempt,
        plain: an_engine_of_another_machine_is_refused,
        plain: without_an_engine_tests_are_ignored_or_fail_if_it_is_required,
        with_containers: the_error_of_a_missing_image_names_it_and_the_fix,
        with_containers: the_environment_names_the_image_unless_the_caller_does,
        with_containers: they_listen_on_loopback_only,
    ]
}

fn without_an_engine_the_error_names_the_attempt() {
    for part in ["prepare", "start"] {
        let output = output_of(part, &[NO_ENGINE]);
        assert!(
            output.starts_with("no container engine answers at DOCKER_HOST=unix:///nowhere: "),
            "{output}"
        );
        assert!(output.contains("set DOCKER_HOST"), "{output}");
    }
    // An engine that accepts connections and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    let output = output_of("prepare", &[("DOCKER_HOST", &address)]);
    assert!(output.contains("silent for 2s"), "{output}");
}

fn an_engine_of_another_machine_is_refused() {
    let output = output_of("prepare", &[("DOCKER_HOST", "tcp://192.0.2.1:2375")]);
    assert!(output.contains("it is one of another machine"), "{output}");
}

fn without_an_engine_tests_are_ignored_or_fail_if_it_is_required() {
    let reasons = [
        "tests with containers are ignored: no container engine",
        "containers are required: no container engine",
    ];
    tests_without(NO_ENGINE, REQUIRE_VARIABLE, reasons);
}

fn the_error_of_a_missing_image_names_it_and_the_fix() {
    // No machine can pull this name, with or without a network.
    let name = "localhost:1/no-such-image:7";
    let error = Masters::builder().containers(Some(name)).start().unwrap_err();
    assert!(matches!(error, RigError::NoImage { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the image {name} is not present and could not be pulled: "))
    );
    for fix in ["just image", "--image NAME", IMAGE_VARIABLE] {
        assert!(text.contains(fix), "{text}");
    }
}

fn the_environment_names_the_image_unless_the_caller_does() {
    let present = prepare(None).unwrap();
    let other = "localhost:1/other";
    let refused = output_of("start", &[(IMAGE_VARIABLE, other)]);
    assert!(refused.starts_with(&format!("the image {other} is not present")), "{refused}");
    let started = output_of("start", &[(IMAGE_VARIABLE, &present)]);
    assert!(started.ends_with(&format!(" in image {present}, 1 container\n")), "{started}");
    assert_eq!(prepare(Some(&present)).unwrap(), present);
}

fn they_listen_on_loopback_only() {
    let masters = containers().count(1).start().unwrap();
    assert!(masters.address(1).ip().is_loopback());
    // All of 127/8 is loopback, but only one address of it was requested.
    let other = ([127, 0, 0, 2], masters.port(1)).into();
    let error = TcpStream::connect_timeout(&other, Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}
