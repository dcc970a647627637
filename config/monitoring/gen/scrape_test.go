package main

import (
	"os"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// API servers don't know ServiceMonitors by themselves, so theirs is checked against the operator's own type. That it
// selects our Service is checked in test/deploy.
func TestTheServiceMonitorHasFieldsThatTheOperatorKnows(t *testing.T) {
	text, err := os.ReadFile("../../components/service-monitor/service_monitor.yaml")
	must(t, err)
	var m monitoringv1.ServiceMonitor
	must(t, yaml.UnmarshalStrict(text, &m))
	if m.Kind != monitoringv1.ServiceMonitorsKind || m.APIVersion != monitoringv1.SchemeGroupVersion.String() {
		t.Errorf("it is %s %s", m.APIVersion, m.Kind)
	}
	if len(m.Spec.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1", len(m.Spec.Endpoints))
	}
	scheme := m.Spec.Endpoints[0].Scheme
	if scheme == nil || !slices.Contains([]string{"https", "HTTPS"}, string(*scheme)) {
		t.Error("replicas serve metrics over TLS")
	}
}
