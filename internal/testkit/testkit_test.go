package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/embed"
	"spillway/internal/testkit"
	"spillway/internal/testkit/server"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func() int{
		"seven": func() int { fmt.Println("seven says hello to", os.Getenv("WHO")); return 7 },
		"settings": func() int {
			fmt.Println(os.Getenv("SPILLWAY_POSTGRES_URL") + "|" + os.Getenv("SPILLWAY_TEST_CANARY") + "|" + os.Getenv("SPILLWAY_LOG_LEVEL"))
			return 0
		},
		"forever": func() int {
			fmt.Println("ready")
			<-time.After(time.Minute) // until it is killed
			return 0
		},
		"redis-owner": ownRedis,
	})
}

// ownRedis is a child that starts a Redis server for itself and waits to be killed.
func ownRedis() int {
	dir := os.Getenv("DIR")
	spec, err := server.NewRedis(context.Background(), dir, filepath.Join(filepath.Dir(dir), "redis.log"))
	if err == nil {
		_, err = server.Start(context.Background(), spec, embed.Tied)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening on", spec.Addr(), "ready")
	<-time.After(time.Minute)
	return 0
}

func TestEachPostgresDatabaseIsEmptyAndItsOwn(t *testing.T) {
	t.Parallel()
	first, second := testkit.Postgres(t), testkit.Postgres(t)
	if first == second {
		t.Fatalf("two databases share %s", first)
	}
	mustExec(t, first, "CREATE TABLE only_here (n int)")
	if err := exec(t.Context(), second, "SELECT n FROM only_here"); err == nil {
		t.Error("the second database shows the first one's table")
	}
}

func TestDatabaseIsDroppedWithTheTest(t *testing.T) { //nolint:tparallel // it looks at what the inner test left
	t.Parallel()
	var dsn string
	t.Run("inner", func(t *testing.T) {
		dsn = testkit.Postgres(t)
		mustExec(t, dsn, "SELECT 1")
	})
	if dsn == "" {
		t.Skip("the inner test was skipped")
	}
	if err := exec(t.Context(), dsn, "SELECT 1"); err == nil {
		t.Errorf("%s is still there", dsn)
	}
}

func TestTopicTakesRecordsWhereTheyAreSent(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 3, map[string]string{"retention.ms": "-1"})
	broker.ProduceTo(t, topic, 0, &kgo.Record{Value: []byte("a")}, &kgo.Record{Value: []byte("b")})
	broker.ProduceTo(t, topic, 2, &kgo.Record{Value: []byte("c")})
	if got, want := fmt.Sprint(broker.EndOffsets(t, topic)), "map[0:2 1:0 2:1]"; got != want {
		t.Errorf("end offsets %s, want %s", got, want)
	}
	broker.DeleteRecords(t, topic, 0, 1)
	if got, want := fmt.Sprint(broker.StartOffsets(t, topic)), "map[0:1 1:0 2:0]"; got != want {
		t.Errorf("start offsets %s, want %s", got, want)
	}
	broker.GrowTopic(t, topic, 4)
	if got := len(testkit.EndOffsets(t, topic)); got != 4 {
		t.Errorf("%d partitions, want 4", got)
	}
}

func TestGroupShowsMembersCommitsAndGeneration(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 2, nil)
	group := testkit.Prefix(t)
	if got := broker.Group(t, group); got.Generation != -1 || len(got.Members) != 0 {
		t.Errorf("a group that never was: %+v", got)
	}
	join := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	settled := func(members int) (state testkit.Group) {
		testkit.Eventually(t, 30*time.Second, func() (bool, string) {
			state = broker.Group(t, group)
			return state.State == "Stable" && len(state.Members) == members, fmt.Sprintf("%+v", state)
		})
		return state
	}
	first := join()
	one := settled(1)
	if got := one.Members[0].Partitions[topic]; len(got) != 2 {
		t.Errorf("the only member has partitions %v of 2", got)
	}
	join()
	if two := settled(2); two.Generation <= one.Generation {
		t.Errorf("generation %d after %d, though a member came", two.Generation, one.Generation)
	}

	broker.Produce(t, topic, &kgo.Record{Key: []byte("k"), Value: []byte("v")})
	if lag := broker.Lag(t, group, topic); lag != 1 {
		t.Errorf("lag %d, want 1", lag)
	}
	if err := first.CommitRecords(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Offset: 4, LeaderEpoch: -1}); err != nil {
		t.Fatal(err)
	}
	if got := testkit.CommittedOffsets(t, group, topic); len(got) != 1 || got[1] != 5 {
		t.Errorf("committed %v, want 5 on partition 1", got)
	}
}

func TestOwnRedisKeepsItsDataThroughKill(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := client.Get(t.Context(), "k").Err(); err == nil {
		t.Error("a killed server answers")
	}
	s.Start()
	if got, err := client.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Errorf("after the restart: %q, %v", got, err)
	}
	s.Stop()
	s.Start()
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answers")
	}
	s.Resume()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		err := client.Ping(t.Context()).Err()
		return err == nil, fmt.Sprint(err)
	})
}

func TestOwnPostgresKeepsItsDataThroughKillAndPause(t *testing.T) {
	t.Parallel()
	s := testkit.StartPostgres(t)
	dsn := testkit.Database(t, s.URL())
	mustExec(t, dsn, "CREATE TABLE kept (n int)")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a session of a paused server says %v", err)
	}
	s.Resume()
	s.Kill()
	if err := exec(t.Context(), dsn, "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	s.Start()
	mustExec(t, dsn, "SELECT n FROM kept")
	s.Stop()
	s.Start()
	mustExec(t, dsn, "SELECT n FROM kept")
}

func TestOwnKafkaBehindProxyKeepsItsRecordsThroughKill(t *testing.T) {
	t.Parallel()
	s, proxy := testkit.StartKafkaBehind(t)
	broker := testkit.Dial(t, proxy.Addr())
	topic := broker.Topic(t, 1, nil)
	broker.Produce(t, topic, &kgo.Record{Value: []byte("a")})
	s.Kill()
	s.Start()
	if got := broker.EndOffsets(t, topic)[0]; got != 1 {
		t.Errorf("the log ends at %d after the restart, want 1", got)
	}
	if total, _ := proxy.Connections(); total < 2 {
		t.Errorf("%d connections went through the proxy", total)
	}
}

func TestChildGivesItsOutputAndExitCode(t *testing.T) {
	t.Parallel()
	child := testkit.Child(t, "seven", "WHO=world")
	if code := child.Wait(10 * time.Second); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if got := child.Output(); !strings.Contains(got, "seven says hello to world") {
		t.Errorf("output %q", got)
	}
	child.Signal(syscall.SIGTERM) // it has ended: no error
}

// TestChildTakesNoSettingsFromTheShell: after the quick start of the README, which exports the addresses of its servers, the
// drills' workers took them for theirs, consumed from the wrong places and failed.
func TestChildTakesNoSettingsFromTheShell(t *testing.T) {
	t.Setenv("SPILLWAY_POSTGRES_URL", "postgres://operator@127.0.0.1:1/orders")
	t.Setenv("SPILLWAY_TEST_CANARY", "kept")
	t.Setenv("SPILLWAY_LOG_LEVEL", "info")
	child := testkit.Child(t, "settings", "SPILLWAY_LOG_LEVEL=debug")
	if code := child.Wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got, want := strings.TrimSpace(child.Output()), "|kept|debug"; got != want {
		t.Errorf("the child sees %q, want %q", got, want)
	}
}

func TestChildDiesBySignal(t *testing.T) {
	t.Parallel()
	for _, end := range []func(*testkit.Proc){
		(*testkit.Proc).Kill,
		func(p *testkit.Proc) { p.Signal(syscall.SIGTERM) },
	} {
		child := testkit.Child(t, "forever")
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			return strings.Contains(child.Output(), "ready"), "no line from the child"
		})
		end(child)
		if code := child.Wait(10 * time.Second); code != -1 {
			t.Errorf("exit code %d, want -1", code)
		}
	}
}

func TestTiedServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	testkit.Redis(t) // a machine that has no redis-server skips here
	child := testkit.Child(t, "redis-owner", "DIR="+filepath.Join(t.TempDir(), "data"))
	var addr string
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		_, err := fmt.Sscanf(child.Output(), "listening on %s ready", &addr)
		return err == nil, child.Output()
	})
	child.Kill()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return true, ""
		}
		return false, fmt.Sprintf("%s still accepts: %v", addr, conn.Close())
	})
}

// echo is a TCP server that sends back what it gets, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// dial connects to the proxy and checks that a word comes back.
func dial(t *testing.T, proxy *testkit.Proxy) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", proxy.Addr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if got, err := say(conn, "hello", 5*time.Second); err != nil || got != "hello" {
		t.Fatalf("the echo of hello is %q, %v", got, err)
	}
	return conn
}

// say sends a word and reads as many bytes back.
func say(conn net.Conn, word string, within time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	back := make([]byte, len(word))
	n, err := io.ReadFull(conn, back)
	return string(back[:n]), err
}

func TestProxyCutsRefusesAndAcceptsAgain(t *testing.T) {
	t.Parallel()
	proxy := testkit.StartProxy(t, echo(t))
	conn := dial(t, proxy)
	proxy.Refuse()
	if _, err := say(conn, "still", 5*time.Second); err != nil {
		t.Errorf("an open connection while refusing: %v", err)
	}
	if _, err := net.DialTimeout("tcp", proxy.Addr(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while refusing: %v", err)
	}
	proxy.Cut()
	if _, err := say(conn, "gone", 5*time.Second); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the cut: %v", err)
	}
	proxy.Accept()
	dial(t, proxy)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		total, open := proxy.Connections()
		return total == 2 && open == 1, fmt.Sprintf("%d connections, %d open, want 2 and 1", total, open)
	})
}

func TestProxyDelaysStallsAndHalfCloses(t *testing.T) {
	t.Parallel()
	proxy := testkit.StartProxy(t, echo(t))
	conn := dial(t, proxy)

	const delay = 50 * time.Millisecond
	proxy.Delay(delay)
	began := time.Now()
	if _, err := say(conn, "late", 5*time.Second); err != nil || time.Since(began) < 2*delay {
		t.Errorf("there and back in %v, %v: want two delays of %v", time.Since(began), err, delay)
	}
	proxy.Delay(0)

	proxy.Stall()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	hear := func(within time.Duration) error {
		if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	if err := hear(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("through a stalled proxy: %v", err)
	}
	proxy.Flow()
	if err := hear(5 * time.Second); err != nil {
		t.Errorf("after the stall: %v", err)
	}

	proxy.HalfClose()
	if _, err := say(conn, "deaf", 5*time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("after the half-close: %v", err)
	}
}

func TestPrefixIsNewEachTime(t *testing.T) {
	t.Parallel()
	if a, b := testkit.Prefix(t), testkit.Prefix(t); a == b || !strings.HasSuffix(a, ":") {
		t.Errorf("prefixes %q and %q", a, b)
	}
}

// exec runs one statement in a session of its own.
func exec(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

func mustExec(t *testing.T, dsn, statement string) {
	t.Helper()
	if err := exec(t.Context(), dsn, statement); err != nil {
		t.Fatalf("%s: %s", statement, err)
	}
}
