module github.com/tenure-dev/tenure

go 1.26.3

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // percentiles of the bench
	github.com/KimMachineGun/automemlimit v1.0.1 // the memory limit of the container
	github.com/go-logr/logr v1.4.4 // the logging interface of controller-runtime
	github.com/google/go-cmp v0.7.0 // differences in tests
	github.com/google/pprof v0.0.0-20250403155104-27863c87afa6 // reading CPU profiles in the bench
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/prometheus/client_model v0.6.3 // reading histograms in the bench and in tests
	github.com/prometheus/common v0.72.0 // parsing a metrics page in the demo, the bench and tests
	github.com/prometheus/procfs v0.22.0 // in the bench and in tests only: what the machine and its processes do
	github.com/santhosh-tekuri/jsonschema/v5 v5.3.1 // in tests only: reports against their schema
	github.com/spf13/cobra v1.10.2 // command lines
	github.com/spf13/pflag v1.0.10 // flags of the command lines, and their environment variables
	go.opentelemetry.io/otel v1.47.0 // traces
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.47.0 // sending traces
	go.opentelemetry.io/otel/sdk v1.47.0 // making traces
	go.opentelemetry.io/otel/trace v1.47.0 // traces
	go.yaml.in/yaml/v3 v3.0.5 // looking at the structure of a kubeconfig before it is parsed
	golang.org/x/oauth2 v0.37.0 // the type of client-go's sources of tokens, for the page
	golang.org/x/sync v0.23.0 // goroutines that end with the first error, or a few at a time
	golang.org/x/sys v0.48.0 // in the bench only: the clocks of processes
	golang.org/x/term v0.46.0 // the demo's and the console's screens
	golang.org/x/time v0.15.0 // token buckets: budgets of events, log lines and traces, limits of requests
	google.golang.org/grpc v1.83.2 // in the bench only: a collector that forgets what it is sent
	k8s.io/api v0.37.2 // Kubernetes' own types
	k8s.io/apimachinery v0.37.2 // Kubernetes' object machinery
	k8s.io/client-go v0.37.2 // clients, informers, transports
	k8s.io/klog/v2 v2.140.0 // client-go logs through it: sent to our log
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // in tests only: formats as API servers check them
	k8s.io/pod-security-admission v0.37.2 // the Pod Security Standards as the API server checks them, for replication
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // clock, pointers, caches that forget
	pgregory.net/rapid v1.3.0 // properties in tests
	sigs.k8s.io/controller-runtime v0.25.2 // managers, caches, clients, queues
	sigs.k8s.io/multicluster-runtime v0.24.1 // controllers over many clusters, the kubeconfig provider; passes its tests with controller-runtime 0.25, but for providers/namespace
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // what server-side apply would change, for replication
	sigs.k8s.io/yaml v1.6.0 // scenarios and manifests
)

require (
	cel.dev/expr v0.25.2 // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.28.0 // indirect
	github.com/go-openapi/swag/cmdutils v0.28.0 // indirect
	github.com/go-openapi/swag/conv v0.28.0 // indirect
	github.com/go-openapi/swag/fileutils v0.28.0 // indirect
	github.com/go-openapi/swag/jsonutils v0.28.0 // indirect
	github.com/go-openapi/swag/loading v0.28.0 // indirect
	github.com/go-openapi/swag/mangling v0.28.0 // indirect
	github.com/go-openapi/swag/netutils v0.28.0 // indirect
	github.com/go-openapi/swag/pools v0.28.0 // indirect
	github.com/go-openapi/swag/stringutils v0.28.0 // indirect
	github.com/go-openapi/swag/typeutils v0.28.0 // indirect
	github.com/go-openapi/swag/yamlutils v0.28.0 // indirect
	github.com/google/cel-go v0.29.2 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.70.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/proto/otlp v1.11.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/exp v0.0.0-20260410095643-746e56fc9e2f // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	gomodules.xyz/jsonpatch/v2 v2.4.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/apiextensions-apiserver v0.37.2 // indirect
	k8s.io/apiserver v0.37.2 // indirect
	k8s.io/component-base v0.37.2 // indirect
	k8s.io/streaming v0.37.2 // indirect
	sigs.k8s.io/apiserver-network-proxy/konnectivity-client v0.36.0 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
)
