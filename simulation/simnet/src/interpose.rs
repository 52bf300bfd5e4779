//! `clock_gettime` and `getrandom` of this process: virtual and seeded on the thread of a
//! simulation, the kernel's elsewhere. std's `Instant`, `SystemTime` and `RandomState`, `uuid`,
//! `fastrand` and `rustix` (feature `use-libc`) end up here.
use std::cell::Cell;

/// Where virtual time begins: any fixed moment, later than any duration that is subtracted from it.
const ORIGIN_S: i64 = 1_000_000;
const EPOCH_S: i64 = 1_700_000_000;

#[derive(Clone, Copy)]
struct Sim {
    on: bool,
    asking: bool,
    /// Virtual nanoseconds since the origin, as last known.
    elapsed: u64,
    start: Option<tokio::time::Instant>,
    random: u64,
    randoms: u64,
}

thread_local! {
    static SIM: Cell<Sim> = const { Cell::new(Sim { on: false, asking: false, elapsed: 0, start: None, random: 0, randoms: 0 }) };
}

fn with<T>(f: impl FnOnce(&mut Sim) -> T) -> T {
    SIM.with(|cell| {
        let mut sim = cell.get();
        let result = f(&mut sim);
        cell.set(sim);
        result
    })
}

/// Sets this thread's clock to the origin, and derives its random numbers from the seed, from now
/// on.
pub fn begin(seed: u64) {
    // Keeps the linker from leaving the symbols out.
    std::hint::black_box((getrandom as *const (), clock_gettime as *const ()));
    with(|sim| {
        *sim = Sim {
            on: true,
            asking: false,
            elapsed: 0,
            start: None,
            random: seed,
            randoms: 0,
        }
    });
}

/// Makes the clock of the paused runtime, from which this is called, the clock of this thread.
pub fn follow_tokio() {
    let now = tokio::time::Instant::now();
    with(|sim| sim.start = Some(now));
}

/// Stops the clock, because the runtime has ended.
pub fn unfollow() {
    with(|sim| sim.start = None);
}

pub fn end() {
    with(|sim| sim.on = false);
}

pub fn randoms() -> u64 {
    with(|sim| sim.randoms)
}

/// Returns the nanoseconds of virtual time; `None` outside of a simulation.
pub fn elapsed() -> Option<u64> {
    let sim = SIM.get();
    if !sim.on {
        return None;
    }
    let Some(start) = sim.start.filter(|_| !sim.asking) else {
        return Some(sim.elapsed);
    };
    // Without a runtime, tokio reads the clock of std, which calls this function.
    with(|sim| sim.asking = true);
    let elapsed =
        u64::try_from((tokio::time::Instant::now() - start).as_nanos()).unwrap_or(u64::MAX);
    with(|sim| (sim.asking, sim.elapsed) = (false, elapsed));
    Some(elapsed)
}

pub fn real(clock: libc::clockid_t) -> libc::timespec {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &mut ts as *mut _) };
    ts
}

/// # Safety
/// As that of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    ts: *mut libc::timespec,
) -> libc::c_int {
    let value = match elapsed() {
        None => real(clock),
        Some(nanos) => {
            let base = if clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_REALTIME_COARSE {
                EPOCH_S
            } else {
                ORIGIN_S
            };
            libc::timespec {
                tv_sec: base + (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as i64,
            }
        }
    };
    unsafe { *ts = value };
    0
}

pub(crate) fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// # Safety
/// As that of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buf: *mut libc::c_void,
    len: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    let mut on = false;
    with(|sim| {
        on = sim.on;
        if on {
            let bytes = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
            for chunk in bytes.chunks_mut(8) {
                let value = mix(&mut sim.random).to_le_bytes();
                chunk.copy_from_slice(&value[..chunk.len()]);
                sim.randoms += 1;
            }
        }
    });
    if on {
        len as libc::ssize_t
    } else {
        unsafe { libc::syscall(libc::SYS_getrandom, buf, len, flags) as libc::ssize_t }
    }
}
