package telemetry

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// sendInterval is the interval at which metrics are sent.
const sendInterval = 30 * time.Second

// metricSender sends the metrics of a registry.
type metricSender struct {
	sender   *sender
	from     prometheus.Gatherer
	resource *resourcepb.Resource
	began    time.Time // start time of counters that do not have their own
	outage   outage
}

// run sends the metrics every sendInterval until ctx ends.
func (f *metricSender) run(ctx context.Context) {
	ticker := time.NewTicker(sendInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.send(ctx)
		}
	}
}

// send sends the current metrics. If some cannot be gathered, it sends the others.
func (f *metricSender) send(ctx context.Context) {
	families, err := f.from.Gather()
	if err != nil {
		f.outage.log.WarnContext(ctx, "some metrics could not be gathered", "error", err)
	}
	now := time.Now()
	scope := &metricspb.ScopeMetrics{Scope: &common.InstrumentationScope{Name: "tenantry"}}
	for _, family := range families {
		if m := f.metric(family, now); m != nil {
			scope.Metrics = append(scope.Metrics, m)
		}
	}
	f.outage.note(ctx, f.sender.post(ctx, "/v1/metrics", &metricspb.MetricsData{
		ResourceMetrics: []*metricspb.ResourceMetrics{{Resource: f.resource, ScopeMetrics: []*metricspb.ScopeMetrics{scope}}},
	}))
}

// metric converts a metric family to OTLP; it returns nil for types that this program does not use. Prometheus counters
// are cumulative.
func (f *metricSender) metric(family *dto.MetricFamily, now time.Time) *metricspb.Metric {
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	out := &metricspb.Metric{Name: family.GetName(), Description: family.GetHelp()}
	at := uint64(now.UnixNano())
	switch family.GetType() {
	case dto.MetricType_COUNTER:
		sum := &metricspb.Sum{AggregationTemporality: cumulative, IsMonotonic: true}
		for _, m := range family.GetMetric() {
			sum.DataPoints = append(sum.DataPoints, &metricspb.NumberDataPoint{
				Attributes: labels(m), StartTimeUnixNano: f.start(m.GetCounter()), TimeUnixNano: at,
				Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: m.GetCounter().GetValue()},
			})
		}
		out.Data = &metricspb.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
		gauge := &metricspb.Gauge{}
		for _, m := range family.GetMetric() {
			gauge.DataPoints = append(gauge.DataPoints, &metricspb.NumberDataPoint{
				Attributes: labels(m), TimeUnixNano: at,
				Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: m.GetGauge().GetValue() + m.GetUntyped().GetValue()},
			})
		}
		out.Data = &metricspb.Metric_Gauge{Gauge: gauge}
	case dto.MetricType_HISTOGRAM:
		histogram := &metricspb.Histogram{AggregationTemporality: cumulative}
		for _, m := range family.GetMetric() {
			bounds, counts := buckets(m.GetHistogram())
			histogram.DataPoints = append(histogram.DataPoints, &metricspb.HistogramDataPoint{
				Attributes: labels(m), StartTimeUnixNano: f.start(m.GetHistogram()), TimeUnixNano: at,
				Count: m.GetHistogram().GetSampleCount(), Sum: m.GetHistogram().SampleSum,
				ExplicitBounds: bounds, BucketCounts: counts,
			})
		}
		out.Data = &metricspb.Metric_Histogram{Histogram: histogram}
	case dto.MetricType_SUMMARY:
		summary := &metricspb.Summary{}
		for _, m := range family.GetMetric() {
			point := &metricspb.SummaryDataPoint{
				Attributes: labels(m), StartTimeUnixNano: f.start(m.GetSummary()), TimeUnixNano: at,
				Count: m.GetSummary().GetSampleCount(), Sum: m.GetSummary().GetSampleSum(),
			}
			for _, q := range m.GetSummary().GetQuantile() {
				point.QuantileValues = append(point.QuantileValues,
					&metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
			}
			summary.DataPoints = append(summary.DataPoints, point)
		}
		out.Data = &metricspb.Metric_Summary{Summary: summary}
	default:
		return nil
	}
	return out
}

// start returns the start time of a cumulative metric.
func (f *metricSender) start(of interface{ GetCreatedTimestamp() *timestamppb.Timestamp }) uint64 {
	if t := of.GetCreatedTimestamp(); t.IsValid() {
		return uint64(t.AsTime().UnixNano())
	}
	return uint64(f.began.UnixNano())
}

func labels(m *dto.Metric) []*common.KeyValue {
	out := make([]*common.KeyValue, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		value := &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: validUTF8(l.GetValue())}}
		out = append(out, &common.KeyValue{Key: l.GetName(), Value: value})
	}
	return out
}

// buckets returns the upper bounds of the buckets of a histogram and the number of values in each. Prometheus buckets
// are cumulative; those of OTLP are not. The last bucket has no bound.
func buckets(h *dto.Histogram) (bounds []float64, counts []uint64) {
	var before uint64
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), +1) {
			break
		}
		bounds, counts = append(bounds, b.GetUpperBound()), append(counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	return bounds, append(counts, h.GetSampleCount()-before)
}
