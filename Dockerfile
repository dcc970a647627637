# syntax=docker/dockerfile:1
# docker build --build-arg VERSION=$(git describe --tags --always) -t tenure .
# Both images can be replaced by ones from your own registry.
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/ cmd/
COPY config/ config/
COPY pkg/ pkg/
COPY shard/ shard/
# What tenure version and tenure status say: the build has no history to read it from.
ARG VERSION=devel
RUN CGO_ENABLED=0 GOOS=${TARGETOS:-linux} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /tenure ./cmd/tenure

FROM ${BASE_IMAGE}
COPY --from=build /tenure /tenure
# A number, so that a kubelet can check runAsNonRoot.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/tenure"]
