//! Names of the shared toolkit that the engine uses.
pub use prov_util::av::Av;
pub use prov_util::cntr::Cntr;
pub use prov_util::cq::{Completion, Cq, ErrorCompletion};
pub use prov_util::mr::MrTable;
use std::ops::Deref;
use std::sync::Arc;
pub struct Use<T>(pub Arc<T>);
impl<T> Clone for Use<T> {
    fn clone(&self) -> Self {
        Use(self.0.clone())
    }
}
impl<T> Deref for Use<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
