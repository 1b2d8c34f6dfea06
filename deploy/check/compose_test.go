package check

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"spillway/internal/config"
)

// compose reads the file as docker compose does: by the schema, with everything resolved. An unknown key is an error.
func compose(t *testing.T, env types.Mapping) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: read(t, "deploy/compose.yaml")}},
		Environment: env,
	}, loader.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFileRefusesAnUnknownKey(t *testing.T) {
	t.Parallel()
	content := strings.Replace(string(read(t, "deploy/compose.yaml")), "healthcheck:", "healthchek:", 1)
	_, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: t.TempDir(), ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(content)}},
	})
	if err == nil || !strings.Contains(err.Error(), "healthchek") {
		t.Errorf("error %v: the other tests here would miss a misspelt key", err)
	}
}

func TestComposeFileHasEverythingWithLimits(t *testing.T) {
	t.Parallel()
	p := compose(t, types.Mapping{})
	want := []string{"grafana", "kafka", "load", "migrate", "postgres", "prometheus", "redis", "topic", "wallet", "worker"}
	if got := p.ServiceNames(); !slices.Equal(got, want) {
		t.Errorf("services %v, want %v", got, want)
	}
	for name, s := range p.Services {
		if s.Deploy == nil || s.Deploy.Resources.Limits == nil || s.Deploy.Resources.Limits.MemoryBytes == 0 {
			t.Errorf("%s has no limit on its memory", name)
		}
		if s.Restart == "" {
			t.Errorf("%s does not say when to restart", name)
		}
		_, tag, tagged := strings.Cut(s.Image, ":")
		if !tagged || tag == "latest" {
			t.Errorf("%s: image %q does not say which version", name, s.Image)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network", name, port.Published)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
		for on, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionHealthy && p.Services[on].HealthCheck == nil {
				t.Errorf("%s waits for the health of %s, which is not checked", name, on)
			}
			if d.Condition == types.ServiceConditionCompletedSuccessfully && strings.HasPrefix(p.Services[on].Restart, "unless") {
				t.Errorf("%s waits for the end of %s, which never ends", name, on)
			}
		}
	}
	if worker := p.Services["worker"]; worker.Deploy.Replicas == nil || *worker.Deploy.Replicas != 2 {
		t.Error("there are not two workers")
	}
	redis := strings.Join(p.Services["redis"].Command, " ")
	if !strings.Contains(redis, "--appendonly yes") || !strings.Contains(redis, "--maxmemory-policy noeviction") {
		t.Errorf("redis runs as %s: it may forget", redis)
	}
}

func TestComposeFileHoldsNoPasswordButTheTrialsDefault(t *testing.T) {
	t.Parallel()
	p := compose(t, types.Mapping{"POSTGRES_PASSWORD": "given1", "GRAFANA_PASSWORD": "given2"})
	for service, env := range map[string][2]string{
		"postgres": {"POSTGRES_PASSWORD", "given1"},
		"worker":   {"SPILLWAY_POSTGRES_URL", "postgres://spillway:given1@postgres:5432/spillway?sslmode=disable"},
		"migrate":  {"SPILLWAY_POSTGRES_URL", "postgres://spillway:given1@postgres:5432/spillway?sslmode=disable"},
		"grafana":  {"GF_SECURITY_ADMIN_PASSWORD", "given2"},
	} {
		if got := p.Services[service].Environment[env[0]]; got == nil || *got != env[1] {
			t.Errorf("%s: %s is not what the environment gave", service, env[0])
		}
	}
}

// environ is a service's environment as the process gets it.
func environ(s types.ServiceConfig) []string {
	var env []string
	for name, value := range s.Environment {
		if value != nil {
			env = append(env, name+"="+*value)
		}
	}
	return env
}

func TestSettingsOfTheTrialPassAndFitTheComposeFile(t *testing.T) {
	t.Parallel()
	p := compose(t, types.Mapping{})
	worker := p.Services["worker"]
	file := filepath.Join(root, "deploy/spillway.yaml")
	cfg, err := config.Load(file, environ(worker))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(file, nil); err != nil {
		t.Errorf("without the environment: %v", err)
	}
	if len(worker.Configs) != 1 || worker.Configs[0].Target != "/etc/spillway/spillway.yaml" {
		t.Errorf("the settings are mounted at %v", worker.Configs)
	}
	if worker.StopGracePeriod == nil || time.Duration(*worker.StopGracePeriod) < cfg.Shutdown.Grace+5*time.Second {
		t.Errorf("the workers are killed after %v and drain for %v", worker.StopGracePeriod, cfg.Shutdown.Grace)
	}
	for _, broker := range cfg.Kafka.Brokers {
		host, port, _ := strings.Cut(broker, ":")
		listeners := p.Services[host].Environment["KAFKA_ADVERTISED_LISTENERS"]
		if listeners == nil || !strings.Contains(*listeners, "://"+host+":"+port) {
			t.Errorf("broker %s is not what Kafka advertises", broker)
		}
	}
	route := cfg.Routes[0]
	if topic := strings.Join(p.Services["topic"].Command, " "); !strings.Contains(topic, "--topic="+route.Topic+" ") {
		t.Errorf("the topic made is not %s: %s", route.Topic, topic)
	}
	if load := strings.Join(p.Services["load"].Command, " "); !strings.Contains(load, "--topic "+route.Topic+" ") {
		t.Errorf("the load does not go to %s", route.Topic)
	}
	if got, listen := route.Downstream.URL.Reveal(), p.Services["wallet"].Command; got != "http://wallet:8080" || !slices.Contains(listen, ":8080") {
		t.Errorf("the wallet listens as %v, orders go to %s", listen, got)
	}
	if !strings.HasSuffix(cfg.HTTP.Listen, ":9464") || strings.HasPrefix(cfg.HTTP.Listen, "127.") {
		t.Errorf("prometheus asks at port 9464, the workers listen at %s", cfg.HTTP.Listen)
	}
	limit := worker.Deploy.Resources.Limits.MemoryBytes
	if int64(route.Prefetch.Bytes)*4 > int64(limit) {
		t.Errorf("prefetch.bytes %d is more than a quarter of the workers' memory %d", route.Prefetch.Bytes, limit)
	}
}

func TestBinaryOfTheImageIsStaticAndKnowsTheComposeFilesCommands(t *testing.T) {
	t.Parallel()
	path := spillway(t)
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic linker, which the image has not")
		}
	}
	p := compose(t, types.Mapping{})
	for _, name := range []string{"worker", "migrate", "wallet"} {
		var words []string
		for _, word := range p.Services[name].Command {
			if strings.HasPrefix(word, "-") {
				break
			}
			words = append(words, word)
		}
		help, err := output(t, nil, path, append(words, "--help")...)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, help)
		}
		for _, word := range p.Services[name].Command[len(words):] {
			if strings.HasPrefix(word, "-") && !strings.Contains(help, word) {
				t.Errorf("%s: %v has no %s", name, words, word)
			}
		}
	}
	if out, err := output(t, environ(p.Services["worker"]), path, "config", "check", "-c", filepath.Join(root, "deploy/spillway.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
