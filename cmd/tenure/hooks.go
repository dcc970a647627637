//go:build !lab

package main

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/telemetry"
)

// labHooks are the hooks by which benchmarks and gates change a binary built with -tags lab. Here they do nothing.
type labHooks struct{}

func (labHooks) Declare(any)                                                      {}
func (labHooks) Validate() error                                                  { return nil }
func (labHooks) Open() error                                                      { return nil }
func (labHooks) Close() error                                                     { return nil }
func (labHooks) Reconciled(telemetry.Reconciled)                                  {}
func (labHooks) Run(context.Context, func(float64, time.Duration), time.Duration) {}
func (labHooks) Clusters(clusters at.Clusters) at.Clusters                        { return clusters }
func (labHooks) Clock() clock.PassiveClock                                        { return clock.RealClock{} }
func (labHooks) Due(due time.Time) time.Time                                      { return due }
func (labHooks) Handler(handler slog.Handler) slog.Handler                        { return handler }
func (labHooks) Wrap(*rest.Config)                                                {}
