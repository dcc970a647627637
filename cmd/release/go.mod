module github.com/tenure-dev/tenure/cmd/release

go 1.26.3

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0 // bills of materials
	github.com/google/go-containerregistry v0.22.1 // images
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d // certificate authorities of the image
)

require (
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
