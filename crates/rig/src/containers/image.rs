//! Chooses the image of the containers. Called by `builder.rs`.

use std::env;

use bollard::Docker;
use testcontainers::{
    ContainerRequest, GenericImage, TestcontainersError, core::client::ClientError,
    runners::AsyncRunner,
};

use super::engine::{failed, is_missing};
use crate::RigError;

/// The environment variable that names the image of the masters, if the caller names none.
pub const IMAGE_VARIABLE: &str = "REDQUORUM_REDIS_IMAGE";

/// A public image. Its full version ensures that all runs use the same one.
pub(crate) const OFFICIAL: &str = "redis:7.2.4";

/// The image that `just image` builds where no image can be pulled.
pub(crate) const LOCAL: &str = "redquorum-redis:local";

/// An image that the engine has.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The name from the caller, the environment or this file.
    pub(crate) name: String,
    /// `sha256:…`: from here on the name is not resolved again, and no image is pulled.
    pub(crate) id: String,
}

impl Image {
    /// The id in two halves, which testcontainers joins again.
    pub(crate) fn request(&self) -> GenericImage {
        let (name, tag) = halves(&self.id);
        GenericImage::new(name, tag)
    }
}

/// Finds the image or pulls it. A named image is used, or an error returned; it is never replaced
/// by another.
pub(crate) async fn find(docker: &Docker, named: Option<String>) -> Result<Image, RigError> {
    let named = named.or_else(|| env::var(IMAGE_VARIABLE).ok()).filter(|name| !name.is_empty());
    let candidates = match &named {
        Some(name) => vec![name.as_str()],
        None => vec![OFFICIAL, LOCAL],
    };
    for name in &candidates {
        if let Some(image) = present(docker, name).await? {
            return Ok(image);
        }
    }
    let name = candidates[0];
    let missing = |why: String| RigError::NoImage { image: name.to_owned(), why };
    let (left, right) = halves(name);
    let request: ContainerRequest<_> = GenericImage::new(left, right).into();
    let _same = request.pull_image().await.map_err(|error| missing(reason(error)))?;
    let image = present(docker, name).await?;
    image.ok_or_else(|| missing("it was pulled, and is not there".to_owned()))
}

async fn present(docker: &Docker, name: &str) -> Result<Option<Image>, RigError> {
    match docker.inspect_image(name).await {
        Ok(found) => {
            let id = found.id.ok_or_else(|| failed("inspect an image", "it has no id"))?;
            Ok(Some(Image { name: name.to_owned(), id }))
        }
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(failed(&format!("look for the image {name}"), error)),
    }
}

/// The engine's error without the name of the image, which our own error contains.
fn reason(error: TestcontainersError) -> String {
    match error {
        TestcontainersError::Client(ClientError::PullImage { err, .. }) => err.to_string(),
        other => other.to_string(),
    }
}

/// Name and tag. A colon before a slash belongs to a port. A digest is cut at its own colon, which
/// is right, because the halves are only joined again.
fn halves(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        Some((left, right)) if !right.contains('/') => (left, right),
        _ => (name, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_name_falls_into_halves_that_make_it_whole_again() {
        assert_eq!(halves("redis"), ("redis", "latest"));
        assert_eq!(halves("redis:7"), ("redis", "7"));
        assert_eq!(halves("host:5000/redis"), ("host:5000/redis", "latest"));
        assert_eq!(halves("host:5000/redis:7"), ("host:5000/redis", "7"));
        assert_eq!(halves("redis@sha256:12ab"), ("redis@sha256", "12ab"));
        assert_eq!(halves("sha256:12ab"), ("sha256", "12ab"));
    }
}
