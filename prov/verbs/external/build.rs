//! See `prov-external`.

fn main() {
    prov_external::link("verbs");
}
