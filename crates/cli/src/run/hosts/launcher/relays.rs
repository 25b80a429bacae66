//! The launcher's part with relays, which call agents and pass on messages in large jobs.

use std::time::Instant;

use anyhow::Result;
use memonet_control::codec::{Bytes, decode};
use memonet_control::frames::{Piece, version};
use memonet_control::relay::{FromRelay, ToRelay};
use memonet_core::Lost;

use super::Launcher;
use crate::run::hosts::call::CALLS;
use crate::run::hosts::node::{Event, Stage};
use crate::run::hosts::relay::{REACH, Relay, SILENCE};

impl Launcher {
    /// Calls a relay, and has it call its agents.
    pub(super) fn call_relay(&mut self, number: usize) -> Result<()> {
        let relay = &mut self.relays[number];
        relay.call(&self.caller, &self.events)?;
        let own = relay.nodes.start;
        let host = |at: usize| match at == own {
            true => String::new(),
            false => self.nodes[at].host.to_string(),
        };
        let agents = relay.nodes.clone().map(|at| (at as u32, host(at))).collect();
        let reach = self.caller.reach();
        relay.send(&ToRelay::Call { agents, reach, heartbeat: self.heartbeat });
        relay.nodes.clone().for_each(|at| self.nodes[at].call_by(number));
        Ok(())
    }

    /// Something has happened at a relay.
    pub(super) fn handle_relay(&mut self, number: usize, event: Event) -> Result<()> {
        match event {
            Event::Output => self.hear_relay(number)?,
            Event::Errors => self.show_relay_errors(number),
            Event::End => {
                let ended = self.relays[number].call.as_mut().and_then(|call| call.ended());
                let Some(status) = ended else { return Ok(()) };
                while self.relays[number].has_more() {
                    self.hear_relay(number)?;
                }
                let relay = &mut self.relays[number];
                relay.call = None;
                relay.attempt += 1;
                let missing = matches!(status.code(), Some(126 | 127)) && !relay.has_greeted;
                if missing && relay.attempt < CALLS && self.ending.is_none() {
                    return self.call_relay(number);
                }
                self.lose_relay(number)?;
            }
            Event::Room => {}
        }
        Ok(())
    }

    /// Reads what a relay passes on.
    fn hear_relay(&mut self, number: usize) -> Result<()> {
        let relay = &mut self.relays[number];
        let Some(from) = &mut relay.from else { return Ok(()) };
        let read = from.read();
        relay.vigil.hear(Instant::now());
        while let Some(from) = &mut self.relays[number].from {
            let piece = match from.next_piece() {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(_) => return self.lose_relay(number),
            };
            let message = match piece {
                Piece::Heartbeat => continue,
                Piece::Foreign(line) => {
                    let at = self.relays[number].nodes.start;
                    self.say_on(at, &line);
                    continue;
                }
                Piece::Greeting(theirs) if theirs == version() => {
                    self.relays[number].has_greeted = true;
                    continue;
                }
                // The call of an agent will say why.
                Piece::Greeting(_) => None,
                Piece::Message(bytes) => decode(&bytes).ok(),
            };
            match message {
                Some(message) => self.handle_passed(number, message)?,
                None => return self.lose_relay(number),
            }
        }
        if read.is_none() && self.relays[number].call.is_none() {
            self.lose_relay(number)?;
        }
        Ok(())
    }

    fn handle_passed(&mut self, number: usize, message: FromRelay) -> Result<()> {
        let (FromRelay::Passed { node, .. }
        | FromRelay::Errors { node, .. }
        | FromRelay::Ended { node }) = message;
        let at = node as usize;
        // Of an agent that the launcher has called itself meanwhile, or has none.
        if self.nodes.get(at).is_none_or(|node| node.relay != Some(number)) {
            return Ok(());
        }
        match message {
            FromRelay::Passed { bytes: Bytes(bytes), .. } => {
                self.nodes[at].take(&bytes);
                self.understand(at);
            }
            FromRelay::Errors { bytes: Bytes(bytes), .. } => {
                self.nodes[at].take_errors(&bytes);
                self.show_errors(at, false);
            }
            FromRelay::Ended { .. } => {
                self.show_errors(at, true);
                self.leave_relay(at)?;
            }
        }
        Ok(())
    }

    /// A relay has nothing more of a node: the launcher calls its agent itself, if that has not
    /// answered yet.
    fn leave_relay(&mut self, at: usize) -> Result<()> {
        let node = &mut self.nodes[at];
        node.relay = None;
        if node.stage != Stage::Called {
            self.lose(at, Lost::Closed);
            return Ok(());
        }
        node.close();
        match self.ending {
            None => node.call(&self.caller, &self.events),
            Some(_) => Ok(()),
        }
    }

    /// A relay passes on nothing more: the hosts that it has reached are lost.
    pub(super) fn lose_relay(&mut self, number: usize) -> Result<()> {
        let relay = &mut self.relays[number];
        relay.end();
        let (nodes, host) = (relay.nodes.clone(), relay.host.clone());
        let left: Vec<usize> = nodes.filter(|&at| self.nodes[at].relay == Some(number)).collect();
        let is_lost = |&&at: &&usize| matches!(self.nodes[at].stage, Stage::Running);
        let lost: Vec<&str> =
            left.iter().filter(is_lost).map(|&at| &*self.nodes[at].host).collect();
        if !lost.is_empty() && self.ending.is_none() {
            let text = format!(
                "the connection to {host} is lost, and with it these hosts, whose agents were started from there: {}",
                lost.join(", ")
            );
            self.course.say(&text);
        }
        left.into_iter().try_for_each(|at| self.leave_relay(at))
    }

    fn show_relay_errors(&mut self, number: usize) {
        let relay = &self.relays[number];
        let at = relay.nodes.start;
        let Some(bytes) = relay.errors() else { return };
        // Before that, the call of an agent says why there is none.
        if relay.has_greeted {
            self.say_on(at, &String::from_utf8_lossy(&bytes));
        }
    }

    /// What time brings about: calls agents that relays do not reach, and ends relays that are
    /// silent.
    pub(super) fn pass_relays(&mut self, now: Instant) -> Result<()> {
        if self.ending.is_none() && now >= self.began + REACH {
            let hangs = |relay: &Relay| relay.call.is_some() && !relay.has_greeted;
            for number in
                (0..self.relays.len()).filter(|&one| hangs(&self.relays[one])).collect::<Vec<_>>()
            {
                self.lose_relay(number)?;
            }
            let waits = |at: &usize| {
                self.nodes[*at].relay.is_some() && self.nodes[*at].stage == Stage::Called
            };
            for at in (0..self.nodes.len()).filter(waits).collect::<Vec<_>>() {
                self.nodes[at].hang_up();
                self.flush_relays()?;
                self.leave_relay(at)?;
            }
        }
        for number in 0..self.relays.len() {
            let relay = &mut self.relays[number];
            if relay.vigil.is_due(now) {
                relay.beat();
            }
            let silent = relay.call.is_some() && relay.vigil.silence(now) > SILENCE;
            if silent && self.heartbeat {
                self.lose_relay(number)?;
            }
        }
        Ok(())
    }

    /// Has relays pass on what waits for their agents.
    pub(super) fn flush_relays(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            if let Some(number) = node.relay {
                node.for_relay().iter().for_each(|message| self.relays[number].send(message));
            }
        }
        self.relays.iter_mut().try_for_each(|relay| relay.flush(&self.events))
    }
}
