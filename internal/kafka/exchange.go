package kafka

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange is one request and its response, encoded by kmsg and carried by kafka-go's Transport, which finds the
// connection and then leaves the bytes to us: see [protocol.RawExchanger]. kafka-go's own types lose what we need: the
// last offset of a batch, a batch's length before it is decompressed, and the error of a heartbeat.
//
// An exchange whose call was given up may still be running on its connection: nothing of it is used again.
type exchange struct {
	request  kmsg.Request
	clientID string
	newest   int16  // the newest version to speak
	limit    int    // the largest response in bytes
	buffer   []byte // reused for the response's bytes if it is large enough
	probe    bool   // ask the broker for its versions first: kafka-go tells only those that it speaks itself
}

// answer is a response on its way through kafka-go.
type answer struct {
	kmsg.Response
	bytes []byte // what the response was decoded from; its byte slices point in here
}

// routed is an exchange with the broker of this id; a bare exchange goes to any.
type routed struct {
	exchange
	node int32
}

var (
	_ protocol.RawExchanger  = (*exchange)(nil)
	_ protocol.BrokerMessage = (*routed)(nil)
)

// correlation is the id in every request's head. A connection carries one request at a time and is closed when one
// fails, so the ids need not differ.
const correlation = 1

// ApiKey implements [protocol.Message].
func (e *exchange) ApiKey() protocol.ApiKey { return protocol.ApiKey(e.request.Key()) }

// ApiKey implements [protocol.Message].
func (a *answer) ApiKey() protocol.ApiKey { return protocol.ApiKey(a.Key()) }

// Broker implements [protocol.BrokerMessage].
func (r *routed) Broker(protocol.Cluster) (protocol.Broker, error) {
	return protocol.Broker{ID: r.node}, nil
}

// Required implements [protocol.RawExchanger]: kafka-go calls it with what the connection negotiated, right before
// RawExchange.
func (e *exchange) Required(versions map[protocol.ApiKey]int16) bool {
	e.request.SetVersion(min(versions[e.ApiKey()], e.newest))
	return true
}

// RawExchange implements [protocol.RawExchanger].
func (e *exchange) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	if e.probe {
		if err := e.negotiate(conn); err != nil {
			return nil, err
		}
	}
	body, err := e.trade(conn, e.request)
	if err != nil {
		return nil, err
	}
	response, err := decodeResponse(e.request, body)
	if err != nil {
		return nil, err
	}
	return &answer{Response: response, bytes: body}, nil
}

// negotiate picks the newest version that both sides speak.
func (e *exchange) negotiate(conn io.ReadWriter) error {
	request := kmsg.NewPtrApiVersionsRequest()
	body, err := e.trade(conn, request)
	if err != nil {
		return err
	}
	response := kmsg.NewPtrApiVersionsResponse()
	if err := response.ReadFrom(body); err != nil {
		return fmt.Errorf("decode the broker's versions: %w", err)
	}
	for _, key := range response.ApiKeys {
		if key.ApiKey == e.request.Key() {
			e.request.SetVersion(min(key.MaxVersion, e.newest))
		}
	}
	return nil
}

// trade writes a request and reads the bytes that answer it, without the response's head.
func (e *exchange) trade(conn io.ReadWriter, request kmsg.Request) ([]byte, error) {
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(e.clientID))
	if _, err := conn.Write(formatter.AppendRequest(nil, request, correlation)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := int(int32At(head[:], 0)) - 4
	if size < 0 || size > e.limit {
		return nil, fmt.Errorf("the broker answers with %d bytes: at most %d are taken", size, e.limit)
	}
	if id := binary.BigEndian.Uint32(head[4:]); id != correlation {
		return nil, fmt.Errorf("the broker answers request %d: want %d", id, correlation)
	}
	body, err := readBody(conn, e.buffer, size)
	if err != nil {
		return nil, err
	}
	// ApiVersions keeps the old head whatever its version, so that its answer can always be read.
	if request.IsFlexible() && request.Key() != int16(protocol.ApiVersions) {
		return skipTags(body)
	}
	return body, nil
}

// readStep bounds what is allocated for bytes that have not come yet.
const readStep = 4 << 20

// readBody reads size bytes, into buffer if they fit.
func readBody(conn io.Reader, buffer []byte, size int) ([]byte, error) {
	if cap(buffer) >= size {
		body := buffer[:size]
		_, err := io.ReadFull(conn, body)
		return body, err
	}
	body := make([]byte, 0, min(size, readStep))
	for len(body) < size {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(size, 2*cap(body)))
			copy(grown, body)
			body = grown
		}
		n, err := io.ReadFull(conn, body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// skipTags steps over the tagged fields of a response's head.
func skipTags(body []byte) ([]byte, error) {
	errShort := fmt.Errorf("decode the response's head: %w", io.ErrUnexpectedEOF)
	count, n := binary.Uvarint(body)
	if n <= 0 {
		return nil, errShort
	}
	body = body[n:]
	for range count {
		_, n := binary.Uvarint(body)
		if n <= 0 {
			return nil, errShort
		}
		size, m := binary.Uvarint(body[n:])
		if m <= 0 || size > uint64(len(body)) || int(size) > len(body)-n-m { //nolint:gosec // it fits: checked before
			return nil, errShort
		}
		body = body[n+m+int(size):] //nolint:gosec // it fits: checked before
	}
	return body, nil
}

// decodeResponse reads the response of a request out of its bytes.
func decodeResponse(request kmsg.Request, body []byte) (kmsg.Response, error) {
	response := request.ResponseKind()
	response.SetVersion(request.GetVersion())
	if err := response.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode the %s response: %w", kmsg.NameForKey(request.Key()), err)
	}
	return response, nil
}
