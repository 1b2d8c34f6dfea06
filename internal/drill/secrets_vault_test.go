package drill

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"spillway/internal/testkit"
)

// vault is real servers that ask for passwords, and a settings file that knows them.
type vault struct {
	t        *testing.T
	redis    string // host:port
	postgres string
	database string
	kafka    string
	service  string // the downstream's URL
	broker   *kgo.Client
	file     string
	env      []string // what the settings file leaves to the environment
}

const (
	vaultUser  = "keeper"
	vaultTopic = "orders.secret"
)

const vaultSettings = `
kafka:
  brokers: ["%s"]
  session_timeout: 6s
  heartbeat: 500ms
  sasl: {mechanism: plain, username: keeper, password_file: "%s"}
redis: {url: "%s"}
postgres: {url: "postgres://keeper@%s/%s?sslmode=disable"}
http: {listen: "127.0.0.1:0"}
log: {level: debug, format: text}
shutdown: {grace: 1s}
routes:
  - name: wallet
    topic: orders.secret
    number: {from: key}
    lease: 4s
    compensate: {after: 200ms, grace: 500ms, delay: 200ms, interval: 100ms}
    replay: {delay: 100ms, delay_max: 200ms}
    downstream:
      url: %s
      timeout: 400ms
      headers: {X-Partner: "%s"}
      submit: {path: /pay, rules: [{status: 401, outcome: INVALID}]}
      lookup: {path: "/pay/{number}"}
`

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{t: t}
	v.openRedis()
	v.openPostgres()
	v.openKafka()
	service := httptest.NewServer(http.HandlerFunc(echoSecrets))
	t.Cleanup(service.Close)
	v.service = service.URL

	dir := t.TempDir()
	password := filepath.Join(dir, "kafka-password")
	if err := os.WriteFile(password, []byte(kafkaPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.file = filepath.Join(dir, "spillway.yaml")
	text := fmt.Sprintf(vaultSettings, v.kafka, password, v.redisURL(vaultUser, redisUserSecret), v.postgres, v.database, v.service, stray)
	if err := os.WriteFile(v.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v.env = []string{
		"SPILLWAY_POSTGRES_URL=" + v.postgresURL(v.postgres, pgPassword),
		"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN=" + bearerToken,
	}
	return v
}

func (v *vault) redisURL(user, password string) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword(user, password), Host: v.redis, Path: "/0"}).String()
}

func (v *vault) postgresURL(host, password string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword(vaultUser, password), Host: host, Path: "/" + v.database, RawQuery: "sslmode=disable",
	}).String()
}

func (v *vault) openRedis() {
	t := v.t
	t.Helper()
	server := testkit.StartRedis(t)
	v.redis = server.Addr()
	db := redis.NewClient(&redis.Options{Addr: v.redis})
	defer func() { _ = db.Close() }()
	for _, command := range [][]any{
		{"ACL", "SETUSER", vaultUser, "on", ">" + redisUserSecret, "~*", "&*", "+@all"},
		{"CONFIG", "SET", "requirepass", redisPassword},
	} {
		if err := db.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// openPostgres lets the role of the worker in with its password alone.
func (v *vault) openPostgres() {
	t := v.t
	t.Helper()
	server := testkit.StartPostgres(t)
	v.postgres = server.Addr()
	dsn, err := url.Parse(testkit.Database(t, server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	v.database = strings.TrimPrefix(dsn.Path, "/")
	conn, err := pgx.Connect(t.Context(), dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var rules string
	if err := conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&rules); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE ROLE " + vaultUser + " LOGIN PASSWORD '" + pgPassword + "'",
		"ALTER DATABASE " + pgx.Identifier{v.database}.Sanitize() + " OWNER TO " + vaultUser,
		"COPY (VALUES ('host all " + vaultUser + " 127.0.0.1/32 scram-sha-256'), ('host all spillway 127.0.0.1/32 trust'), ('local all spillway trust')) TO '" + rules + "'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		refused, err := pgx.Connect(t.Context(), v.postgresURL(v.postgres, "wrong"))
		if err == nil {
			_ = refused.Close(t.Context())
		}
		return err != nil, "a wrong password is let in"
	})
}

func (v *vault) openKafka() {
	t := v.t
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, vaultTopic), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", vaultUser, kafkaPassword), kfake.Superuser("SCRAM-SHA-256", vaultUser, kafkaPassword))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	v.kafka = cluster.ListenAddrs()[0]
	v.broker, err = kgo.NewClient(kgo.SeedBrokers(v.kafka), kgo.SASL(plain.Auth{User: vaultUser, Pass: kafkaPassword}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.broker.Close)
}

func (v *vault) produce(keys ...string) {
	v.t.Helper()
	for _, key := range keys {
		r := &kgo.Record{Topic: vaultTopic, Key: []byte(key), Value: []byte(`{"amount":1}`)}
		if err := v.broker.ProduceSync(v.t.Context(), r).FirstErr(); err != nil {
			v.t.Fatal(err)
		}
	}
}

// echoSecrets is a downstream that gives back what it was sent, as badly written services do: in every form and place.
func echoSecrets(w http.ResponseWriter, q *http.Request) {
	got := q.Header.Get("Authorization")
	token := strings.TrimPrefix(got, "Bearer ")
	echo := fmt.Sprintf(`{"error":"bad credentials","authorization":%q,"token":"%s","partner":"%s","b64":"%s","upper":"%s","url":"%s"}`,
		got, token, q.Header.Get("X-Partner"), base64.StdEncoding.EncodeToString([]byte(token)), strings.ToUpper(token), url.QueryEscape(got))
	w.Header().Set("WWW-Authenticate", got)
	w.Header().Set("X-Echo", got)
	switch key := q.Header.Get("Idempotency-Key"); {
	case strings.HasPrefix(key, "DENIED"):
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasPrefix(key, "BAD"):
		w.WriteHeader(http.StatusBadRequest)
	case strings.HasPrefix(key, "ODD"):
		w.WriteHeader(http.StatusConflict)
	case strings.HasPrefix(key, "MOVED"):
		w.Header().Set("Location", "http://"+token+"@127.0.0.1/"+token)
		w.WriteHeader(http.StatusFound)
	case q.Method == http.MethodPost:
		w.WriteHeader(http.StatusInternalServerError)
	default: // a lookup
		w.WriteHeader(http.StatusBadGateway)
	}
	_, _ = w.Write([]byte(echo)) // the caller may be gone
}
