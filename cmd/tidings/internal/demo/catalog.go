package demo

import (
	"math"
	"strconv"
)

// app is an application installed in the cluster.
type app struct {
	namespace, name string
	kind            string // default: Deployment
	image           string
	tags            []string // in order of version
	replicas        int
	port            int32
	cpu, memory     string // requests
	labels          map[string]string
	args            []string
	env             []string
	config          map[string]string // its ConfigMap
	host            string            // its Ingress
	storage         string            // per replica
	schedule        string            // of a CronJob
	secret          bool
	sidecar         bool
	hostNetwork     bool
	mayFail         bool // is deployed often and breaks sometimes
}

func k8sApp(name string) map[string]string { return map[string]string{"k8s-app": name} }

// platform is installed in every cluster.
var platform = []app{
	{namespace: "kube-system", name: "kube-proxy", kind: "DaemonSet", image: "registry.k8s.io/kube-proxy", tags: []string{"v1.36.0"}, cpu: "100m", memory: "64Mi",
		labels: k8sApp("kube-proxy"), hostNetwork: true, args: []string{"--config=/etc/config/config.conf", "--hostname-override=$(NODE_NAME)"},
		config: map[string]string{"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.244.0.0/16\n"}},
	{namespace: "kube-system", name: "cilium", kind: "DaemonSet", image: "quay.io/cilium/cilium", tags: []string{"v1.18.2"}, cpu: "100m", memory: "256Mi",
		labels: k8sApp("cilium"), hostNetwork: true, args: []string{"--config-dir=/tmp/cilium/config-map"}},
	{namespace: "kube-system", name: "cilium-operator", image: "quay.io/cilium/operator-generic", tags: []string{"v1.18.2"}, replicas: 2, cpu: "50m", memory: "64Mi",
		labels: map[string]string{"io.cilium/app": "operator", "name": "cilium-operator"}},
	{namespace: "kube-system", name: "coredns", image: "registry.k8s.io/coredns/coredns", tags: []string{"v1.12.4"}, replicas: 2, port: 9153, cpu: "100m", memory: "70Mi",
		labels: k8sApp("kube-dns"), args: []string{"-conf", "/etc/config/Corefile"},
		config: map[string]string{"Corefile": ".:53 {\n    errors\n    health {\n       lameduck 5s\n    }\n    ready\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n       fallthrough in-addr.arpa ip6.arpa\n       ttl 30\n    }\n    prometheus :9153\n    forward . /etc/resolv.conf\n    cache 30\n    loop\n    reload\n    loadbalance\n}\n"}},
	{namespace: "kube-system", name: "metrics-server", image: "registry.k8s.io/metrics-server/metrics-server", tags: []string{"v0.8.0"}, replicas: 1, port: 10250, cpu: "100m", memory: "200Mi",
		labels: k8sApp("metrics-server"), args: []string{"--cert-dir=/tmp", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=15s"}},
	{namespace: "cert-manager", name: "cert-manager", image: "quay.io/jetstack/cert-manager-controller", tags: []string{"v1.19.0", "v1.19.1"}, replicas: 1, port: 9402, cpu: "10m", memory: "64Mi"},
	{namespace: "cert-manager", name: "cert-manager-webhook", image: "quay.io/jetstack/cert-manager-webhook", tags: []string{"v1.19.0", "v1.19.1"}, replicas: 2, port: 10250, cpu: "10m", memory: "32Mi"},
	{namespace: "ingress-nginx", name: "ingress-nginx-controller", image: "registry.k8s.io/ingress-nginx/controller", tags: []string{"v1.13.2", "v1.13.3"}, replicas: 3, port: 8080, cpu: "100m", memory: "90Mi",
		config: map[string]string{"proxy-body-size": "8m", "use-gzip": "true"}},
	{namespace: "monitoring", name: "node-exporter", kind: "DaemonSet", image: "quay.io/prometheus/node-exporter", tags: []string{"v1.9.1"}, port: 9100, cpu: "100m", memory: "30Mi", hostNetwork: true},
	{namespace: "monitoring", name: "prometheus", kind: "StatefulSet", image: "quay.io/prometheus/prometheus", tags: []string{"v3.6.0"}, replicas: 2, port: 9090, cpu: "500m", memory: "2Gi", storage: "100Gi",
		config: map[string]string{"prometheus.yml": "global:\n  scrape_interval: 15s\nscrape_configs:\n- job_name: pods\n  kubernetes_sd_configs:\n  - role: pod\n"}},
	{namespace: "monitoring", name: "alertmanager", kind: "StatefulSet", image: "quay.io/prometheus/alertmanager", tags: []string{"v0.28.1"}, replicas: 3, port: 9093, cpu: "50m", memory: "64Mi", storage: "1Gi"},
	{namespace: "monitoring", name: "grafana", image: "docker.io/grafana/grafana", tags: []string{"12.2.0", "12.2.1"}, replicas: 1, port: 3000, cpu: "100m", memory: "256Mi", host: "grafana.example.com", secret: true,
		config: map[string]string{"grafana.ini": "[server]\nroot_url = https://grafana.example.com\n"}},
	{namespace: "logging", name: "fluent-bit", kind: "DaemonSet", image: "cr.fluentbit.io/fluent/fluent-bit", tags: []string{"4.1.0"}, cpu: "50m", memory: "64Mi",
		config: map[string]string{"fluent-bit.conf": "[SERVICE]\n    Flush 1\n[INPUT]\n    Name tail\n    Path /var/log/containers/*.log\n"}},
	{namespace: "logging", name: "loki", kind: "StatefulSet", image: "docker.io/grafana/loki", tags: []string{"3.5.5"}, replicas: 3, port: 3100, cpu: "250m", memory: "512Mi", storage: "50Gi"},
	{namespace: "data", name: "postgres", kind: "StatefulSet", image: "docker.io/library/postgres", tags: []string{"18.0"}, replicas: 3, port: 5432, cpu: "500m", memory: "1Gi", storage: "200Gi", secret: true},
	{namespace: "data", name: "kafka", kind: "StatefulSet", image: "docker.io/apache/kafka", tags: []string{"4.1.0"}, replicas: 5, port: 9092, cpu: "500m", memory: "2Gi", storage: "500Gi"},
	{namespace: "data", name: "redis", image: "docker.io/library/redis", tags: []string{"8.2.1", "8.2.2"}, replicas: 4, port: 6379, cpu: "100m", memory: "256Mi"},
	{namespace: "data", name: "backup", kind: "CronJob", image: "registry.example.com/platform/backup", tags: []string{"2.3.1"}, cpu: "100m", memory: "128Mi", schedule: "*/5 * * * *", secret: true,
		args: []string{"backup", "--all", "--to=s3://example-backups"}},
	{namespace: "default", name: "hello", image: "registry.k8s.io/e2e-test-images/agnhost", tags: []string{"2.53"}, replicas: 2, port: 8080, cpu: "10m", memory: "16Mi", args: []string{"netexec", "--http-port=8080"}},
}

// business is the company's own software. Large clusters have several copies.
var business = []app{
	{namespace: "shop", name: "frontend", image: "registry.example.com/shop/frontend", tags: versions("3.14"), replicas: 14, port: 8080, cpu: "200m", memory: "256Mi", host: "shop.example.com", sidecar: true, mayFail: true,
		env: []string{"CATALOG_URL=http://catalog", "CART_URL=http://cart", "CHECKOUT_URL=http://checkout", "FEATURE_FLAGS=new-search,fast-checkout"}, config: map[string]string{"theme": "winter", "banner": "Free shipping from 30 €"}},
	{namespace: "shop", name: "catalog", image: "registry.example.com/shop/catalog", tags: versions("2.8"), replicas: 10, port: 8080, cpu: "250m", memory: "384Mi", sidecar: true, mayFail: true,
		env: []string{"DATABASE_URL=postgres://postgres.data/catalog", "CACHE_URL=redis://redis.data"}, secret: true},
	{namespace: "shop", name: "cart", image: "registry.example.com/shop/cart", tags: versions("1.22"), replicas: 8, port: 8080, cpu: "100m", memory: "128Mi", sidecar: true, mayFail: true,
		env: []string{"CACHE_URL=redis://redis.data"}},
	{namespace: "shop", name: "checkout", image: "registry.example.com/shop/checkout", tags: versions("5.1"), replicas: 8, port: 8080, cpu: "200m", memory: "256Mi", sidecar: true, mayFail: true,
		env: []string{"PAYMENTS_URL=http://api.payments", "BROKERS=kafka.data:9092"}, secret: true},
	{namespace: "shop", name: "recommendations", image: "registry.example.com/shop/recommendations", tags: versions("0.9"), replicas: 6, port: 8080, cpu: "500m", memory: "1Gi", mayFail: true,
		config: map[string]string{"model": "als-2026-10", "top-k": "24"}},
	{namespace: "shop", name: "search", image: "registry.example.com/shop/search", tags: versions("4.3"), replicas: 8, port: 8080, cpu: "400m", memory: "768Mi", mayFail: true},
	{namespace: "shop", name: "price-import", kind: "CronJob", image: "registry.example.com/shop/price-import", tags: []string{"1.4.0"}, cpu: "100m", memory: "128Mi", schedule: "*/2 * * * *", args: []string{"import", "--source=erp"}},
	{namespace: "payments", name: "api", image: "registry.example.com/payments/api", tags: versions("7.0"), replicas: 9, port: 8443, cpu: "250m", memory: "256Mi", host: "pay.example.com", sidecar: true, secret: true, mayFail: true,
		env: []string{"LEDGER_URL=http://ledger", "FRAUD_URL=http://fraud", "BROKERS=kafka.data:9092"}},
	{namespace: "payments", name: "fraud", image: "registry.example.com/payments/fraud", tags: versions("2.2"), replicas: 6, port: 8080, cpu: "500m", memory: "512Mi", mayFail: true,
		config: map[string]string{"threshold": "0.82"}},
	{namespace: "payments", name: "webhooks", image: "registry.example.com/payments/webhooks", tags: versions("1.7"), replicas: 5, port: 8080, cpu: "100m", memory: "128Mi", mayFail: true},
	{namespace: "payments", name: "ledger", kind: "StatefulSet", image: "registry.example.com/payments/ledger", tags: []string{"3.0.4"}, replicas: 3, port: 8080, cpu: "500m", memory: "1Gi", storage: "100Gi", secret: true},
	{namespace: "payments", name: "settlement", kind: "CronJob", image: "registry.example.com/payments/settlement", tags: []string{"2.0.0"}, cpu: "200m", memory: "256Mi", schedule: "*/3 * * * *", secret: true},
	{namespace: "ci", name: "runner", image: "registry.example.com/ci/runner", tags: versions("18.4"), replicas: 8, cpu: "500m", memory: "512Mi", secret: true},
}

func versions(minor string) []string {
	out := make([]string, 12)
	for i := range out {
		out[i] = minor + "." + strconv.Itoa(i)
	}
	return out
}

// catalog returns the applications that add up to about Workload.Pods pods.
func (s *simulation) catalog() []app {
	var daemons, fixed, scalable int
	for _, a := range platform {
		if a.kind == "DaemonSet" {
			daemons++
		} else {
			fixed += a.replicas
		}
	}
	for _, a := range business {
		scalable += a.replicas
	}
	fixed += daemons*s.w.Nodes + 4 // plus the static pods
	wanted := max(0, s.w.Pods-fixed)
	copies := max(1, int(math.Round(float64(wanted)/float64(2*scalable))))
	factor := float64(wanted) / float64(copies*scalable)

	out := append([]app(nil), platform...)
	for i := range copies {
		for _, a := range business {
			if i > 0 {
				a.namespace += "-" + strconv.Itoa(i+1)
			}
			if a.kind == "" {
				a.replicas = max(1, int(math.Round(float64(a.replicas)*factor)))
			}
			out = append(out, a)
		}
	}
	return out
}
