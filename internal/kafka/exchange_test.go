package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pipe is a connection whose other end has said everything already.
type pipe struct {
	io.Reader
	bytes.Buffer
}

func (p *pipe) Read(b []byte) (int, error) { return p.Reader.Read(b) }

// response frames the bytes of a response.
func response(id int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	return append(b, body...)
}

func heartbeatExchange(limit int) *exchange {
	return &exchange{request: kmsg.NewPtrHeartbeatRequest(), newest: heartbeatVersion, limit: limit, clientID: "c"}
}

// versions is what a connection negotiated, for one request.
func versions(key protocol.ApiKey, version int16) map[protocol.ApiKey]int16 {
	negotiated := make(map[protocol.ApiKey]int16, 1)
	negotiated[key] = version
	return negotiated
}

func TestExchangeReadsTheErrorOfAHeartbeat(t *testing.T) {
	t.Parallel()
	for version := range int16(5) {
		e := heartbeatExchange(100)
		e.newest = 4
		if !e.Required(versions(protocol.Heartbeat, version)) {
			t.Fatal("the exchange leaves the bytes to kafka-go")
		}
		answered := kmsg.HeartbeatResponse{Version: version, ErrorCode: 27, ThrottleMillis: 5}
		body := answered.AppendTo(nil)
		if answered.IsFlexible() {
			// Two tagged fields in the head, of one and two bytes.
			body = append([]byte{2, 0, 1, 9, 1, 2, 9, 9}, body...)
		}
		message, err := e.RawExchange(&pipe{Reader: bytes.NewReader(response(correlation, body))})
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if got := as[*kmsg.HeartbeatResponse](t, as[*answer](t, message).Response); got.ErrorCode != 27 {
			t.Errorf("version %d: code %d", version, got.ErrorCode)
		}
	}
}

func TestExchangeRefusesWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	answered := kmsg.HeartbeatResponse{Version: 3}
	good := answered.AppendTo(nil)
	for name, c := range map[string]struct {
		bytes []byte
		says  string
	}{
		"nothing":                 {nil, "EOF"},
		"a cut answer":            {response(correlation, good)[:9], "EOF"},
		"more than the limit":     {response(correlation, make([]byte, 101)), "at most 100"},
		"a negative size":         {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, "at most 100"},
		"a size without an id":    {[]byte{0, 0, 0, 2, 0, 0, 0, 1}, "at most 100"},
		"somebody else's answer":  {response(7, good), "request 7"},
		"an answer that is short": {response(correlation, good[:3]), "decode"},
	} {
		e := heartbeatExchange(100)
		e.Required(versions(protocol.Heartbeat, 3))
		_, err := e.RawExchange(&pipe{Reader: bytes.NewReader(c.bytes)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error is %v, want one that says %q", name, err, c.says)
		}
	}
}

// asking is a reader that has nothing and notes how much it was asked for at once.
type asking struct{ most int }

func (a *asking) Read(b []byte) (int, error) {
	a.most = max(a.most, len(b))
	return 0, io.EOF
}

func TestExchangeAllocatesOnlyForWhatHasCome(t *testing.T) {
	t.Parallel()
	asked := &asking{}
	if _, err := readBody(asked, nil, 1<<30); !errors.Is(err, io.EOF) || asked.most > readStep {
		t.Errorf("a gigabyte that does not come: %d bytes are held for it, error %v", asked.most, err)
	}
	buffer := make([]byte, 0, 64)
	body, err := readBody(bytes.NewReader(make([]byte, 64)), buffer, 64)
	if err != nil || &body[0] != &buffer[:1][0] {
		t.Errorf("the buffer was not used again: %v", err)
	}
	body, err = readBody(bytes.NewReader(make([]byte, 9<<20)), buffer, 9<<20)
	if err != nil || len(body) != 9<<20 {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

// TestTransportLeavesTheConnectionToAnExchange pins what kafka-go promises of RawExchanger only in a comment: that a
// connection asks the message, with what was negotiated, and then lets it write and read by itself.
func TestTransportLeavesTheConnectionToAnExchange(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	answered := kmsg.HeartbeatResponse{Version: 3, ErrorCode: 25}
	got := make(chan []byte, 1)
	go func() {
		defer func() { _ = theirs.Close() }()
		var size [4]byte
		if _, err := io.ReadFull(theirs, size[:]); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(theirs, request); err != nil {
			return
		}
		got <- request
		_, _ = theirs.Write(response(correlation, answered.AppendTo(nil)))
	}()
	conn := protocol.NewConn(ours, "driver")
	conn.SetVersions(versions(protocol.Heartbeat, 9))
	message, err := conn.RoundTrip(&routed{exchange: *heartbeatExchange(100), node: 4})
	if err != nil {
		t.Fatal(err)
	}
	if code := as[*kmsg.HeartbeatResponse](t, as[*answer](t, message).Response).ErrorCode; code != 25 {
		t.Errorf("code %d", code)
	}
	request := <-got
	if key, version := binary.BigEndian.Uint16(request), binary.BigEndian.Uint16(request[2:]); key != 12 || version != heartbeatVersion {
		t.Errorf("request %d in version %d was written", key, version)
	}
	broker, err := (&routed{node: 4}).Broker(protocol.Cluster{})
	if err != nil || broker.ID != 4 {
		t.Errorf("it is routed to broker %d: %v", broker.ID, err)
	}
	// What kafka-go negotiates is bounded by what it speaks itself.
	for _, want := range []struct {
		key    protocol.ApiKey
		newest int16
	}{
		{protocol.Fetch, fetchVersion},
		{protocol.ListOffsets, listVersion},
		{protocol.OffsetCommit, commitVersion},
		{protocol.OffsetFetch, offsetFetchVersion},
		{protocol.Heartbeat, heartbeatVersion},
		{protocol.LeaveGroup, leaveVersion},
		{protocol.FindCoordinator, coordinatorVersion},
	} {
		if want.key.MaxVersion() < want.newest {
			t.Errorf("kafka-go speaks %v up to version %d only, we want %d", want.key, want.key.MaxVersion(), want.newest)
		}
	}
	if (&apiversions.Request{}).ApiKey() != protocol.ApiVersions {
		t.Error("kafka-go numbers ApiVersions otherwise")
	}
}
