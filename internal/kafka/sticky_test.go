package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// numbers returns 0 to n-1.
func numbers(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// group makes claims of members named by their number, none of which holds anything.
func group(members int) []claim {
	claims := make([]claim, members)
	for i := range claims {
		claims[i].member = fmt.Sprintf("m-%04d", i)
	}
	return claims
}

// after returns the claims that the members have once they were dealt these shares.
func after(claims []claim, shares [][]int32, generation int32) []claim {
	next := slices.Clone(claims)
	for i := range next {
		next[i].holding = holding{generation: generation, partitions: shares[i]}
	}
	return next
}

// balanced checks that every partition is dealt once and that shares differ by at most one.
func balanced(t *testing.T, shares [][]int32, partitions []int32) {
	t.Helper()
	var all []int32
	least, most := len(partitions), 0
	for _, s := range shares {
		if !slices.IsSorted(s) {
			t.Fatalf("a share is not in order: %v", s)
		}
		all = append(all, s...)
		least, most = min(least, len(s)), max(most, len(s))
	}
	slices.Sort(all)
	if !slices.Equal(all, partitions) {
		t.Fatalf("%v were dealt of %v", all, partitions)
	}
	if most-least > 1 {
		t.Fatalf("the smallest share is %d, the largest %d", least, most)
	}
}

// stayed counts the partitions that are still where their last owner is.
func stayed(claims []claim, shares [][]int32) int {
	n := 0
	for i := range claims {
		for _, p := range shares[i] {
			if slices.Contains(claims[i].partitions, p) {
				n++
			}
		}
	}
	return n
}

func TestSharesAreEvenWhateverTheMembersClaim(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		claims, partitions := group(random.IntN(12)+1), numbers(random.IntN(40))
		for i := range claims {
			claims[i].generation = random.Int32N(4)
			for p := range int32(50) { // also partitions that there are not, and what others claim too
				if random.IntN(4) == 0 {
					claims[i].partitions = append(claims[i].partitions, p)
				}
			}
		}
		shares := deal(claims, partitions)
		balanced(t, shares, partitions)

		// The order in which the coordinator lists the members does not matter.
		order := random.Perm(len(claims))
		shuffled := make([]claim, len(claims))
		for i, from := range order {
			shuffled[i] = claims[from]
		}
		for i, share := range deal(shuffled, partitions) {
			if !slices.Equal(share, shares[order[i]]) {
				t.Fatalf("%s gets %v or %v, as the members are listed", shuffled[i].member, share, shares[order[i]])
			}
		}
	}
}

// TestAsManyPartitionsStayAsBalanceAllows compares with the best of all ways to say who gets the larger shares.
func TestAsManyPartitionsStayAsBalanceAllows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		claims, partitions := group(random.IntN(8)+1), numbers(random.IntN(30))
		for _, p := range partitions {
			if who := random.IntN(len(claims) + 1); who < len(claims) {
				if random.IntN(2) == 0 {
					who = 0 // often far too much in one place
				}
				claims[who].partitions = append(claims[who].partitions, p)
			}
		}
		least, larger := len(partitions)/len(claims), len(partitions)%len(claims)
		best := 0
		for set := range 1 << len(claims) {
			kept, n := 0, 0
			for i := range claims {
				allowed := least
				if set&(1<<i) != 0 {
					allowed++
					n++
				}
				kept += min(allowed, len(claims[i].partitions))
			}
			if n == larger {
				best = max(best, kept)
			}
		}
		if got := stayed(claims, deal(claims, partitions)); got != best {
			t.Fatalf("%d partitions stay, %d could: %v", got, best, claims)
		}
	}
}

func TestNothingMovesWhileTheMembersStay(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3, 7} {
		claims, partitions := group(members), numbers(20)
		shares := deal(claims, partitions)
		for generation := range int32(5) {
			claims = after(claims, shares, generation)
			next := deal(claims, partitions)
			for i := range shares {
				if !slices.Equal(next[i], shares[i]) {
					t.Fatalf("%d members: %v became %v", members, shares, next)
				}
			}
		}
	}
}

// TestAMemberMoreOrLessMovesOnlyItsOwnShare walks through joins and leaves: a join moves what the new member gets, a
// leave what the old one had, and no more.
func TestAMemberMoreOrLessMovesOnlyItsOwnShare(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	partitions := numbers(100)
	claims, named := group(3), 3
	claims = after(claims, deal(claims, partitions), 0)
	for generation := range int32(300) {
		lost := 0
		if random.IntN(2) == 0 && len(claims) > 1 {
			gone := random.IntN(len(claims))
			lost = len(claims[gone].partitions)
			claims = slices.Delete(claims, gone, gone+1)
		} else if len(claims) < 30 {
			claims = append(claims, claim{member: fmt.Sprintf("m-%04d", named)})
			named++
		}
		shares := deal(claims, partitions)
		balanced(t, shares, partitions)
		moved, bound := len(partitions)-stayed(claims, shares), lost
		for i := range claims {
			if claims[i].partitions == nil {
				bound += len(shares[i])
			}
		}
		if moved > bound {
			t.Fatalf("generation %d: %d partitions moved, want at most %d", generation, moved, bound)
		}
		claims = after(claims, shares, generation+1)
	}
}

func TestThePartitionsLastOwnerIsTheOneOfTheLatestGeneration(t *testing.T) {
	t.Parallel()
	claims := []claim{
		{"b", holding{7, []int32{0, 1}}},
		{"a", holding{6, []int32{0, 1}}}, // was away for a generation
	}
	shares := deal(claims, numbers(4))
	if !slices.Equal(shares[0], []int32{0, 1}) || !slices.Equal(shares[1], []int32{2, 3}) {
		t.Errorf("b has %v, a %v", shares[0], shares[1])
	}
}

func TestAThousandMembersAndTenThousandPartitionsAreDealtAtOnce(t *testing.T) {
	t.Parallel()
	const members, count = 1000, 10_000
	claims, partitions := group(members), numbers(count)
	claims = after(claims, deal(claims, partitions), 1)
	claims = append(claims[:members-100], group(members + 50)[members:]...)
	wire := 0
	began := time.Now()
	for i := range claims {
		encoded := claims[i].encode()
		wire += len(encoded)
		claims[i].holding = decodeHolding(encoded)
	}
	shares := deal(claims, partitions)
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	balanced(t, shares, partitions)
	if wire > 100_000 {
		t.Errorf("the members' user data takes %d bytes", wire)
	}
}

func BenchmarkDeal(b *testing.B) {
	claims, partitions := group(1000), numbers(10_000)
	claims = after(claims, deal(claims, partitions), 1)[:900]
	for b.Loop() {
		deal(claims, partitions)
	}
}

func TestHoldingsSurviveTheWire(t *testing.T) {
	t.Parallel()
	for _, h := range []holding{
		{},
		{generation: 1},
		{generation: -1, partitions: []int32{0}},
		{1<<31 - 1, []int32{0, 1, 5, 700, 1<<31 - 1}},
		{3, numbers(60_000)},
	} {
		got := decodeHolding(h.encode())
		if got.generation != h.generation || !slices.Equal(got.partitions, h.partitions) {
			t.Errorf("generation %d with %d partitions became %d with %d", h.generation, len(h.partitions), got.generation, len(got.partitions))
		}
	}
	// One that is too large is told of in part.
	got := decodeHolding(holding{3, numbers(200_000)}.encode())
	if n := len(got.partitions); n == 0 || n == 200_000 || !slices.Equal(got.partitions, numbers(n)) {
		t.Errorf("%d partitions came of 200000", n)
	}
}

func FuzzAnyUserDataIsDealtWith(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\x01"))
	f.Add([]byte("\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte("\x00\x00\x00\x0c")) // of the balancers before
	f.Add(holding{4, []int32{1, 2, 9}}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		h := decodeHolding(data)
		if len(h.partitions) > len(data) {
			t.Fatalf("%d bytes became %d partitions", len(data), len(h.partitions))
		}
		for i, p := range h.partitions {
			if p < 0 || (i > 0 && p <= h.partitions[i-1]) {
				t.Fatalf("partitions %v", h.partitions)
			}
		}
		partitions := numbers(12)
		balanced(t, deal([]claim{{"a", h}, {"b", holding{1, []int32{3, 4}}}, {"c", holding{}}}, partitions), partitions)
	})
}

func TestTheLeaderDealsEachTopicAmongThoseWhoSubscribeToIt(t *testing.T) {
	t.Parallel()
	s := &share{topic: "orders"}
	balancers, err := s.balancers(Sticky)
	if err != nil {
		t.Fatal(err)
	}
	got := balancers[0].AssignGroups(
		[]kafkago.GroupMember{
			{ID: "a", Topics: []string{"orders"}, UserData: holding{1, []int32{1, 2}}.encode()},
			{ID: "b", Topics: []string{"orders"}, UserData: []byte("nonsense")},
			{ID: "c", Topics: []string{"other", "other"}},
			{ID: "d", Topics: []string{"other"}, UserData: holding{1, []int32{0}}.encode()},
			{ID: "e"},
		},
		[]kafkago.Partition{{Topic: "other", ID: 0}, {Topic: "orders", ID: 2}, {Topic: "orders", ID: 0}, {Topic: "orders", ID: 1}},
	)
	if len(got) != 5 || !slices.Equal(got["a"]["orders"], []int{1, 2}) || !slices.Equal(got["b"]["orders"], []int{0}) || len(got["a"]) != 1 {
		t.Errorf("dealt %v", got)
	}
	// A topic that others of the group subscribe to is theirs, whoever leads.
	if !slices.Equal(got["d"]["other"], []int{0}) || len(got["c"]["other"]) != 0 || len(got["e"]) != 0 {
		t.Errorf("dealt %v of the other topic", got)
	}
	if dealt, led := s.take(); dealt != 3 || !led {
		t.Errorf("%d were dealt, led: %v", dealt, led)
	}
}
