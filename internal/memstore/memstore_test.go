package memstore_test

import (
	"testing"
	"time"

	"spillway/internal/memstore"
	"spillway/internal/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Store { return memstore.New(time.Now) })
}
