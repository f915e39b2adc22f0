//! Measures what the network adds to a round trip: `PING` to a real master, straight and through a
//! proxy.
//!
//! `cargo run --release -p redquorum-rig --example network_latency`

use std::{
    error::Error,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use redquorum_rig::{Masters, network::Network};

fn main() -> Result<(), Box<dyn Error>> {
    const ROUNDS: usize = 20;
    const PINGS: usize = 2_000;
    let masters = Masters::start(1)?;
    let master = ([127, 0, 0, 1], masters.port(1)).into();
    let network = Network::start(|_| {})?;
    network.upstream(1, Some(master));
    let mut ways = [("straight", master), ("through the network", network.listen("c1", 1)?)]
        .map(|(name, address)| (name, TcpStream::connect(address), Vec::new()));
    // The two ways take turns, so that other load on the machine affects both.
    for _ in 0..ROUNDS {
        for (_, stream, took) in &mut ways {
            let stream = stream.as_mut().map_err(|error| error.to_string())?;
            stream.set_nodelay(true)?;
            for _ in 0..PINGS {
                let start = Instant::now();
                stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
                stream.read_exact(&mut [0; 7])?;
                took.push(start.elapsed());
            }
        }
    }
    let at = |took: &[Duration], percent: usize| took[took.len() * percent / 100];
    for (name, _, took) in &mut ways {
        took.sort_unstable();
        println!("{name}: p50 {:?}, p99 {:?}", at(took, 50), at(took, 99));
    }
    println!("added: p50 {:?}", at(&ways[1].2, 50).saturating_sub(at(&ways[0].2, 50)));
    Ok(())
}
