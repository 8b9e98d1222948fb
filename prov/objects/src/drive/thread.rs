//! The timer precision of the progress thread.

/// Makes the sleeps of the calling thread end on time.
pub(super) fn sleep_exactly() {
    const SLACK: Option<std::num::NonZeroU64> = std::num::NonZeroU64::new(1_000);
    // Without it, bursts are sent about 50 microseconds later.
    let _ = rustix::thread::set_current_timer_slack(SLACK);
}
