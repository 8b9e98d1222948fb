//! What users can set (fi_tcp(7)).

use std::ops::RangeInclusive;
use std::time::Duration;

/// The parameters.
#[derive(Clone, Debug)]
pub struct Params {
    pub port_low: u16,
    pub port_high: u16,
    pub nodelay: bool,
    pub staging_sbuf_size: usize,
    pub max_inject: usize,
    pub tx_size: usize,
    pub rx_size: usize,
    pub unexpected_limit: usize,
    pub connect_timeout: Duration,
    pub firewall_addr: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            port_low: 0,
            port_high: 0,
            nodelay: true,
            staging_sbuf_size: 64 * 1024,
            max_inject: 128,
            tx_size: 65536,
            rx_size: 65536,
            unexpected_limit: 64 << 20,
            connect_timeout: Duration::from_secs(15),
            firewall_addr: false,
        }
    }
}

impl Params {
    /// Ports to listen at where the application names none.
    pub fn port_range(&self) -> Option<RangeInclusive<u16>> {
        (self.port_high != 0).then(|| self.port_low..=self.port_high)
    }

    pub fn nodelay(&self) -> bool {
        self.nodelay
    }

    pub fn staging_sbuf_size(&self) -> usize {
        self.staging_sbuf_size
    }

    #[inline]
    pub fn max_inject(&self) -> usize {
        self.max_inject
    }

    #[inline]
    pub fn unexpected_limit(&self) -> usize {
        self.unexpected_limit
    }

    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// How long a peer that refuses connections is given to come back.
    pub fn refused_timeout(&self) -> Duration {
        (self.connect_timeout / 5).max(Duration::from_millis(100))
    }

    pub fn firewall_addr(&self) -> bool {
        self.firewall_addr
    }
}
