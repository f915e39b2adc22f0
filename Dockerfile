# The image of a release: the static programs, their licences, and the authorities for TLS.
# `.ci/release-image` makes its context out of the archives of `.ci/binaries`.
FROM scratch
ARG TARGETARCH
COPY ${TARGETARCH}/ /
USER 65534:65534
ENTRYPOINT ["/redquorum"]
