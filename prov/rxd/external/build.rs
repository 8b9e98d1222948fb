//! See `prov-external`.

fn main() {
    prov_external::link("rxd");
}
