//! What the machine file says of the slot's signals *wait* and *interrupt*.

use crate::machine::{MachineError, Section};
use crate::nic::Interrupts;
use crate::time::Ps;

/// What the two signals take.
#[derive(Debug, Clone, Copy)]
pub struct Pemm {
    pub interrupts: Interrupts,
    /// The NIC makes an access wait while it turns a bank.
    pub bank_wait: Ps,
}

impl Pemm {
    /// The signals of this host's slot, if it has them.
    pub fn read(host: &Section<'_>) -> Result<Option<Pemm>, MachineError> {
        let choices = [("dimm", false), ("pemm", true)];
        if !host.has("interface") || !host.choice("interface", &choices)? {
            return Ok(None);
        }
        let interrupts = Interrupts { after: host.time("spin")?, time: host.time("interrupt")? };
        Ok(Some(Pemm { interrupts, bank_wait: host.time("bank_wait")? }))
    }
}
